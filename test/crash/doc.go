// Package crash kills Sluice at every crash point and checks that nothing is
// lost, doubled, oversold or left behind.
//
// The real binary, built with the tag faults, runs on one data folder for the
// whole test, supervised as by systemd: whenever it dies, it is started again. For
// each row of the table in points_test.go a platform plays a story, such as
// provision, bind, update, rotate, unbind, deprovision; before one of its steps a
// crash point is armed (package internal/crashpoint). The process must die there,
// and the story must go on to its end, by nothing but what platforms do: repeat
// requests whose connection broke. The member clusters are real control planes
// (package test/controlplane).
//
// What must hold (the word for each is the one in the failure messages):
//
//   - lost: every step that was begun ends as it would have without the kill.
//   - doubled: an instance's namespaces are exactly on the clusters of its decision.
//   - oversold: at no instant, before or after, do the quotas on a cluster, or the
//     reservations for it, exceed what it has. An auditor looks all the time.
//   - left behind: after unbind no account of the binding, and its token is
//     refused; after deprovision no namespace, and nothing in the hub.
//
// The last is checked while the next rows run, as namespaces take their time.
//
// TestLeaderSleeps stops a leader instead, of three replicas on a real API server, while
// orders come in: another one takes over, and the one that slept goes on where it was. What
// stands on the member cluster must never be more than it has room for.
//
// TestEveryCrashPointHasARow, which needs no tag, reads the source for crash
// points, so that none is forgotten. The package knows Sluice by its binary, its
// API and its resources only.
package crash
