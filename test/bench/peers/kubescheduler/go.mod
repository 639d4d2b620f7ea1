module github.com/sluice-dev/sluice/test/bench/peers/kubescheduler

go 1.26

require k8s.io/kubernetes v1.34.4
