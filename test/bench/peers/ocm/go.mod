module github.com/sluice-dev/sluice/test/bench/peers/ocm

go 1.26

require open-cluster-management.io/ocm v1.2.1
