// Package crash kills Sluice after every write and checks that nothing is
// lost, doubled, oversold or left behind.
//
// The real binary, built with the tag faults, runs on one hub for all stories
// of a bed, embedded or a cluster, supervised as by systemd: whenever it dies, it is started again. A
// platform and an operator play the stories in crash_test.go, such as provision,
// bind, update, rotate, unbind, deprovision. During each step the process dies after
// each of its writes, once (package internal/crashpoint). The step must come to its end all the same, by
// nothing but what platforms do: repeat requests whose connection broke. The member clusters are real control planes (package
// test/controlplane).
//
// What must hold (the word for each is the one in the failure messages):
//
//   - lost: every step that was begun ends as it would have without the kills, and every
//     event of the hub comes to two subscribers, of which one refuses many, or does not answer.
//   - out of order, invented: the events of one resource come to them in their order, and
//     none comes that the hub does not have, or has otherwise.
//   - doubled: an instance's namespaces are exactly on the clusters of its decision.
//   - oversold: at no instant, before or after, do the quotas on a cluster, or the
//     reservations for it, exceed what it has. An auditor looks all the time.
//   - left behind: after unbind no account of the binding, and its token is
//     refused; after deprovision no namespace, and nothing in the hub but records.
//
// When everything is gone, the records must agree, to the second, with a meter that has looked at the
// resources of the hub and has got the events (meter_test.go):
//
//   - usage, as operators and the platform read it, is the integral of what was reserved where
//     it was delivered, for each instance and cluster. Of a move, both places are never used at once.
//   - contracts: each decision that was delivered has one, from that second on, which names the one before
//     by its digest, has the policy in force, and is signed by the broker. No decision has two, and
//     one that was not delivered has none.
//
// At the end the audit logs of all member clusters are read: Sluice must have been killed
// at every write that they have of it. TestUncoveredWrite shows that one would be noticed
// that has not passed internal/crashpoint.
//
// TestLeaderSleeps stops a leader instead, of three replicas on a real API server, while
// orders come in: another one takes over, and the one that slept goes on where it was. What
// stands on the member cluster must never be more than it has room for.
//
// TestComponentsMoveWithoutAGap looks after every write to any cluster, while a component moves and Sluice is
// killed, whether whoever follows the name of a component is let in where it leads, and finds it there.
//
// The package knows Sluice by its binary, its API and its resources only.
package crash
