// Package faults stands between Sluice and a member cluster and answers in the API
// server's place: what load balancers, proxies, overloaded servers and broken
// connections do.
//
// [Proxy] is in front of a real API server (package test/controlplane). Its tests take
// instances through their whole life, provision, bind, update, unbind and deprovision,
// each under one of [Faults], heal the cluster, and then look on it: nothing is lost,
// nothing is left behind, and no token works that was taken back.
package faults
