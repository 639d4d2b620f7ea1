module github.com/sluice-dev/sluice/test/bench/peers/fleet

go 1.26
