// Module pause is the program that keeps the namespaces of a pod open.
module github.com/sluice-dev/sluice/test/kind/modules/pause

go 1.26.0
