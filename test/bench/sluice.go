package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/test/loopback"
)

// platforms are the callers.
const platforms = "platforms:\n- name: bench\n  basic: [{username: bench, password: bench-password}]\n"

// offering of the plans that are ordered.
const offering = `
apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata:
  name: bench
  namespace: sluice
spec:
  id: bench
  name: bench
  description: What the benchmark orders
  plans:
    - id: small
      name: small
      description: Next to nothing, on one cluster or more
      kind: resources
      waitFor: Anything
      resources:
        limits: {cpu: 10m, memory: 16Mi, pods: "1"}
        maxClusters: 64
`

// sluice is a running `sluice serve` with an embedded hub, and a client of it.
type sluice struct {
	binary, dataDir string
	url, metricsURL string
	cmd             *exec.Cmd
	log             *os.File
	client          *http.Client
	// ready is how long it took from the start of the process until /readyz said so.
	ready time.Duration
}

// serve starts Sluice on a data folder, new or not, and returns when it is ready.
func (b *bench) serve(ctx context.Context, dataDir string, flags ...string) (*sluice, error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(b.folder, "platforms.yaml")
	if err := os.WriteFile(file, []byte(platforms), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(dataDir + ".log")
	if err != nil {
		return nil, err
	}
	address, metrics := loopback.Address(), loopback.Address()
	s := &sluice{
		log: log, binary: b.binary, dataDir: dataDir, url: "http://" + address, metricsURL: "http://" + metrics + "/metrics",
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}, Timeout: time.Minute},
	}
	s.cmd = exec.Command(b.binary, append([]string{"serve", "--data-dir", dataDir, "--listen", address, "--metrics-listen", metrics, "--platforms", file}, flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sluice: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := poll(ctx, 5*time.Millisecond, s.isReady); err != nil {
		s.kill()
		return nil, fmt.Errorf("wait until sluice is ready: %w; the end of its log:\n%s", err, s.logEnd())
	}
	s.ready = time.Since(began)
	return s, nil
}

// serveNew starts Sluice on a new data folder, with the offering in its catalog.
func (b *bench) serveNew(ctx context.Context, name string, flags ...string) (*sluice, error) {
	s, err := b.serve(ctx, filepath.Join(b.folder, name), flags...)
	if err != nil {
		return nil, err
	}
	if err := s.operate(ctx, strings.NewReader(offering), "catalog", "apply", "-f", "-"); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// kill ends the process without asking.
func (s *sluice) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.client.CloseIdleConnections()
	_ = s.log.Close()
}

// operate runs a command of the operator's.
func (s *sluice) operate(ctx context.Context, in io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--data-dir", s.dataDir)...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sluice %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (s *sluice) logEnd() string {
	text, _ := os.ReadFile(s.log.Name())
	return string(text[max(0, len(text)-4000):])
}

func (s *sluice) isReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", response.Status)
	}
	return nil
}

// request makes an OSB request.
func (s *sluice) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth("bench", "bench-password")
	r.Header.Set("X-Broker-API-Version", "2.17")
	return r, nil
}

// send sends a request and reads the answer into a value, unless that is nil.
func (s *sluice) send(r *http.Request, want int, into any) error {
	response, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != want {
		return fmt.Errorf("%s %s: %s %s, want %d", r.Method, r.URL.Path, response.Status, text, want)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// provision orders an instance on so many clusters.
func (s *sluice) provision(ctx context.Context, id string, clusters int) error {
	return s.order(ctx, id, fmt.Sprintf(`{"service_id":"bench","plan_id":"small","organization_guid":"o","space_guid":"s","parameters":{"clusters":%d}}`, clusters))
}

// order orders an instance with a body, and does not wait for it.
func (s *sluice) order(ctx context.Context, id, body string) error {
	r, err := s.request(ctx, http.MethodPut, "/v2/service_instances/"+id+"?accepts_incomplete=true", []byte(body))
	if err != nil {
		return err
	}
	return s.send(r, http.StatusAccepted, nil)
}

// await polls until the instance is provisioned, much more often than platforms do.
func (s *sluice) await(ctx context.Context, id string) error {
	return poll(ctx, 2*time.Millisecond, func(ctx context.Context) error { return s.awaitOnce(ctx, id) })
}

// awaitOnce is an error as long as the instance is not provisioned.
func (s *sluice) awaitOnce(ctx context.Context, id string) error {
	r, err := s.request(ctx, http.MethodGet, "/v2/service_instances/"+id+"/last_operation", nil)
	if err != nil {
		return err
	}
	var operation struct{ State, Description string }
	if err := s.send(r, http.StatusOK, &operation); err != nil {
		return err
	}
	if operation.State != "succeeded" {
		return fmt.Errorf("instance %s: %s: %s", id, operation.State, operation.Description)
	}
	return nil
}

// cpu is the time that the process has computed so far, in user and kernel mode (proc(5), stat).
func (s *sluice) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const user, system, perSecond = 11, 12, 100 // of the fields after the name; USER_HZ
	var ticks, more int64
	if _, err := fmt.Sscan(fields[user]+" "+fields[system], &ticks, &more); err != nil {
		return 0, fmt.Errorf("read the CPU time of sluice: %w", err)
	}
	return time.Duration(ticks+more) * time.Second / perSecond, nil
}

// memory is a field of the process's status in proc(5), in MiB: VmRSS, RssFile or VmHWM.
func (s *sluice) memory(field string) (int, error) {
	var kibibytes int
	if _, err := fmt.Sscan(fieldOf(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid), field), &kibibytes); err != nil {
		return 0, fmt.Errorf("read %s of sluice: %w", field, err)
	}
	return kibibytes >> 10, nil
}

// poll repeats do until it succeeds; its last error is the one returned when ctx
// ends first.
func poll(ctx context.Context, every time.Duration, do func(context.Context) error) error {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-ticks.C:
		}
	}
}
