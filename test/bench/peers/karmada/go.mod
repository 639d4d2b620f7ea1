module github.com/sluice-dev/sluice/test/bench/peers/karmada

go 1.26

require github.com/karmada-io/karmada v1.18.2
