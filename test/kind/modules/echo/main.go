// Command echo is the smallest web workload: every GET on port 8080 is answered with the host name,
// which in Kubernetes is the name of the pod, and /source with the address that the request came from.
// It ends within five seconds of SIGTERM. Called as `echo get URL`, it makes one request instead and
// prints the answer: what a pod can reach, its image having no other program.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	do := run
	if len(os.Args) == 3 && os.Args[1] == "get" {
		do = func() error { return get(os.Args[2]) }
	}
	if err := do(); err != nil {
		log.Fatal(err)
	}
}

func get(url string) error {
	client := http.Client{Timeout: 2 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, io.LimitReader(response.Body, 1<<16))
	return err
}

func run() error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, hostname) })
	mux.HandleFunc("GET /source", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, host)
	})
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", server.Addr, err)
	case <-stop.Done():
	}
	drain, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(drain); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}
