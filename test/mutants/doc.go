// Command mutants measures how well the tests of a package notice mistakes: it makes a number of
// random small changes to the package, one at a time, and runs the package's own tests on each.
//
//	go run ./test/mutants -sample 200 -record bin/mutants.txt ./placement
//
// A change that the tests notice is killed; one that they do not notice survives, and is printed to
// be read. Changes that do not compile are not counted, and others are made in their place. The same
// seed makes the same choice, as long as the source is the same. Nothing is written to the source
// tree: the go command is given each changed file as an overlay. With -record, an interrupted run goes
// on where it stopped; a survivor whose test has been written is tried again once its line is
// removed from that file.
package main
