// Command echo is the smallest web workload: every GET on port 8080 is answered with the host name,
// which in Kubernetes is the name of the pod, and /source with the address that the request came from.
// It ends within five seconds of SIGTERM. Called as `echo get URL`, it makes one request instead and
// prints the answer: what a pod can reach, its image having no other program. `echo time URL COUNT`
// makes many, one after the other, and prints the median of how long they took, in milliseconds. `echo load
// URL PREFIX` makes requests until its standard input ends, each on a connection of its own, and prints how many
// there were, and each that was not answered with the prefix. `echo tls CERTIFICATE KEY` answers on port 8443 by
// TLS instead, with what is in the two files.
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	do := func() error { return run(":8080", (*http.Server).ListenAndServe) }
	switch {
	case len(os.Args) == 3 && os.Args[1] == "get":
		do = func() error { return get(os.Args[2], os.Stdout) }
	case len(os.Args) == 4 && os.Args[1] == "time":
		do = func() error { return measure(os.Args[2], os.Args[3], false) }
	case len(os.Args) == 4 && os.Args[1] == "connect":
		do = func() error { return measure(os.Args[2], os.Args[3], true) }
	case len(os.Args) == 4 && os.Args[1] == "load":
		do = func() error { return load(os.Args[2], os.Args[3]) }
	case len(os.Args) == 4 && os.Args[1] == "tls":
		do = func() error {
			return run(":8443", func(s *http.Server) error { return s.ListenAndServeTLS(os.Args[2], os.Args[3]) })
		}
	}
	if err := do(); err != nil {
		log.Fatal(err)
	}
}

var client = http.Client{Timeout: 2 * time.Second}

func get(url string, w io.Writer) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(w, io.LimitReader(response.Body, 1<<16))
	return err
}

// measure prints the median of the times that requests take or, if each has a connection of its own, their mean, their
// median and the 99th percentile. There is a pause between them, in which neither side is held back by its share of a
// processor.
func measure(url, count string, connects bool) error {
	client.Transport = &http.Transport{DisableKeepAlives: connects}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > 100_000 {
		return fmt.Errorf("count %q: want a number from 1 to 100000", count)
	}
	took := make([]time.Duration, n)
	pause := time.NewTicker(20 * time.Millisecond)
	for i := range took {
		<-pause.C
		began := time.Now()
		if err := get(url, io.Discard); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	if !connects {
		fmt.Printf("%.3f\n", milliseconds(took[n/2]))
		return nil
	}
	sum := time.Duration(0)
	for _, one := range took {
		sum += one
	}
	fmt.Printf("%.3f %.3f %.3f\n", milliseconds(sum/time.Duration(n)), milliseconds(took[n/2]), milliseconds(took[n*99/100]))
	return nil
}

// load prints a line for each request that failed, with the time since the first one, and last the number of all
// requests and the seconds that the longest took. A packet that is lost while a network changes only makes a request
// longer: Linux sends the first one of a connection again after one second and after three (RFC 6298, section 2).
func load(url, prefix string) error {
	client = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	longest := time.Duration(0)
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	pause := time.NewTicker(20 * time.Millisecond)
	for began, n := time.Now(), 0; ; n++ {
		select {
		case err := <-ended:
			fmt.Printf("%d %.2f\n", n, longest.Seconds())
			return err
		case <-pause.C:
		}
		var answer strings.Builder
		at := time.Since(began)
		err := get(url, &answer)
		took := time.Since(began) - at
		longest = max(longest, took)
		if err != nil || !strings.HasPrefix(answer.String(), prefix) {
			fmt.Printf("after %.2f s, for %.2f s: %q %v\n", at.Seconds(), took.Seconds(), answer.String(), err)
		}
	}
}

func run(address string, serve func(*http.Server) error) error {
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
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- serve(server) }()
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
