// Program is a small one for the tests of a release: to build Sluice for four platforms takes minutes.
package main

var version = "none"

func main() { println(version) }
