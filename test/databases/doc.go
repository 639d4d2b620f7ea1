// Package databases has real database servers for tests, and OSB brokers that sell databases on them.
//
// A [Server] is MariaDB or PostgreSQL of Debian, a process of its own on this machine, run by an unprivileged user. The
// broker in front of it ([NewBroker]) keeps nothing itself: an instance is a database, a binding a login with rights on
// that database alone, and both are named by digests of their ids. So [Server.Holds] is all that was sold and not given
// back. The broker's side of OSB is brokerapi's.
//
// The package knows nothing of Sluice.
package databases
