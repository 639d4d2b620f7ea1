package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The processes of TestClaimsPage that are controllers.

// run runs the controller as the chart's Deployment does, with the rights of its account.
func (s *claimsStory) run() {
	s.Helper()
	var deployment appsv1.Deployment
	var broker corev1.Secret
	if err := errors.Join(
		s.consumer.Get(s.Context(), client.ObjectKey{Namespace: "sluice-claims", Name: "claims"}, &deployment),
		s.consumer.Get(s.Context(), client.ObjectKey{Namespace: "sluice-claims", Name: "broker"}, &broker),
	); err != nil {
		s.Fatal(err)
	}
	token, err := s.kubectl("create", "token", deployment.Spec.Template.Spec.ServiceAccountName, "--namespace", "sluice-claims")
	if err != nil {
		s.Fatalf("%v\n%s", err, token)
	}
	config, err := clientcmd.LoadFromFile(filepath.Join(s.folder, "consumer.kubeconfig"))
	if err != nil {
		s.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token, user.ClientCertificateData, user.ClientKeyData = strings.TrimSpace(token), nil, nil
	}
	account, credentials := filepath.Join(s.folder, "account.kubeconfig"), filepath.Join(s.folder, "credentials.json")
	if err := errors.Join(clientcmd.WriteToFile(*config, account), os.WriteFile(credentials, broker.Data["credentials.json"], 0o600)); err != nil {
		s.Fatal(err)
	}
	s.args = s.argsOf(&deployment)
	if s.log, err = os.Create(filepath.Join(s.ArtifactDir(), "claims.log")); err != nil {
		s.Fatal(err)
	}
	if err := s.startController(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		end(s.controller)
		if text, err := os.ReadFile(s.log.Name()); err == nil && s.Failed() {
			s.Logf("the controller's log (its end):\n%s", text[max(0, len(text)-8000):])
		}
	})
}

// argsOf returns the arguments of the controller in a Deployment, for a process beside the story.
func (s *claimsStory) argsOf(deployment *appsv1.Deployment) (args []string) {
	for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.Replace(arg, "/etc/sluice/broker/credentials.json", filepath.Join(s.folder, "credentials.json"), 1))
	}
	return append(args, "--kubeconfig", filepath.Join(s.folder, "account.kubeconfig"), "--metrics-listen", "0", "--overlap", "3s")
}

// elects runs two replicas for a while, as the chart does: one of them works. When it is killed, the other one does.
func (s *claimsStory) elects() {
	s.Helper()
	if out, err := s.command("bash", "-c", "helm upgrade claims charts/claims --namespace sluice-claims --reuse-values --set replicas=2"); err != nil {
		s.Fatalf("%v\n%s", err, out)
	}
	var deployment appsv1.Deployment
	if err := s.consumer.Get(s.Context(), client.ObjectKey{Namespace: "sluice-claims", Name: "claims"}, &deployment); err != nil {
		s.Fatal(err)
	}
	alone := s.args
	first := s.restarts(s.argsOf(&deployment))
	s.Cleanup(func() { end(first) })
	worked := s.worker("")
	s.mu.Lock()
	err := s.startController()
	s.mu.Unlock()
	if err != nil {
		s.Fatal(err)
	}
	end(first)
	s.worker(worked)
	s.restarts(alone)
}

// worker waits for a replica that works, and is another one than before. It returns its name.
func (s *claimsStory) worker(before string) (name string) {
	s.Helper()
	s.until("another replica than "+before+" works", func(context.Context) error {
		var err error
		if name, err = s.kubectl("get", "lease", "sluice-claims-default", "--namespace", "sluice-claims", "-o", "jsonpath={.spec.holderIdentity}"); err != nil || name == before {
			return fmt.Errorf("it is %s, %v", name, err)
		}
		return nil
	})
	return name
}

// restarts kills the controller, and starts it with other arguments.
func (s *claimsStory) restarts(args []string) *exec.Cmd {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	end(s.controller)
	s.args = args
	if err := s.startController(); err != nil {
		s.Fatal(err)
	}
	return s.controller
}

// end kills a process, unless it has ended.
func end(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

func (s *claimsStory) startController() error {
	s.controller = exec.Command(os.Args[0], s.args...)
	s.controller.Env = append(os.Environ(), asSluice+"=1")
	s.controller.Stdout, s.controller.Stderr = s.log, s.log
	return s.controller.Start()
}

// kills returns what kills the controller at the first request of each kind, once it has been carried out, and starts it
// again. Nobody hears the answer.
func (s *claimsStory) kills() func(http.ResponseWriter, *http.Request) bool {
	seen := map[string]bool{}
	return func(_ http.ResponseWriter, r *http.Request) bool {
		what := r.Method
		if strings.Contains(r.URL.Path, "service_bindings") {
			what += " binding"
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if seen[what] || r.Method == http.MethodGet {
			return false
		}
		seen[what] = true
		end(s.controller)
		if err := s.startController(); err != nil {
			s.Errorf("start the controller again: %v", err)
		}
		panic(http.ErrAbortHandler)
	}
}
