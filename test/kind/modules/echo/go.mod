// Module echo is the smallest web workload: it answers with the name of its pod.
module github.com/sluice-dev/sluice/test/kind/modules/echo

go 1.26.0
