package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/internal/seal"
)

func newDoctorCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation, and say what to do about what is wrong",
		Long: `Check that the hub answers, has the definitions of this version and the same time, that somebody serves it, that the
keyset opens what is sealed, that the platforms file is valid, that the broker answers, that clusters enforce the rules
of policies for pods and have nodes that take pods, and that everything is ready.
What cannot be checked from here is skipped, with the reason. The exit status is 1 if a check fails.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, failed := examine(cmd, hub)
			if output.forPeople() {
				writeFindings(cmd.OutOrStdout(), findings)
			} else if err := output.print(cmd.OutOrStdout(), findings, table{}); err != nil {
				return err
			}
			if failed > 0 {
				return fmt.Errorf("%d of %s failed", failed, count(len(findings), "check"))
			}
			return nil
		},
	}
	hub.bind(cmd)
	output.bind(cmd)
	return cmd
}

// finding is the result of a check.
type finding struct {
	Check  string  `json:"check"`
	Result outcome `json:"result"`
	// Message says what was found, and for what is wrong what to do.
	Message string `json:"message"`
}

// outcome of a check.
type outcome string

const (
	checkPassed  outcome = "passed"
	checkFailed  outcome = "failed"
	checkSkipped outcome = "skipped"
)

// marks show outcomes.
var marks = map[outcome]string{checkPassed: "✔", checkFailed: "✘", checkSkipped: "-"}

// skipped is the error of a check that is not possible from here.
type skipped string

func (s skipped) Error() string { return string(s) }

// examination has the connections that the checks share.
type examination struct {
	cmd    *cobra.Command
	ctx    context.Context
	hub    *hubFlags
	config *rest.Config
	client.Client
}

// checks are made in this order. After the first, each is made whether or not others fail.
var checks = []struct {
	name string
	// check returns what it has found, or an error with the remedy.
	check func(*examination) (string, error)
}{
	{"hub", (*examination).hubAnswers},
	{"definitions", (*examination).definitions},
	{"clock", (*examination).clock},
	{"leader", (*examination).leader},
	{"keyset", (*examination).keyset},
	{"platforms", (*examination).platforms},
	{"broker", (*examination).broker},
	{"restored", (*examination).restored},
	{"rules", (*examination).rules},
	{"nodes", (*examination).nodes},
	{"resources", (*examination).resources},
}

// examine makes all checks.
func examine(cmd *cobra.Command, hub *hubFlags) (findings []finding, failed int) {
	e := &examination{cmd: cmd, hub: hub}
	for _, c := range checks {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
		e.ctx = ctx
		found := finding{Check: c.name, Result: checkPassed}
		message, err := c.check(e)
		cancel()
		switch why := skipped(""); {
		case errors.As(err, &why):
			found.Result, message = checkSkipped, string(why)
		case err != nil:
			found.Result, message = checkFailed, err.Error()
			failed++
		}
		found.Message = message
		findings = append(findings, found)
		if e.Client == nil {
			break // without a hub, there is nothing to look at
		}
	}
	return findings, failed
}

func writeFindings(w io.Writer, findings []finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%s %-12s %s\n", marks[f.Result], f.Check, printable(f.Message))
	}
}

// hubAnswers connects to the hub.
func (e *examination) hubAnswers() (string, error) {
	config, err := e.hub.config(e.cmd)
	if err != nil {
		return "", err
	}
	began := time.Now()
	id, err := hub.Identity(e.ctx, config)
	if err != nil {
		return "", fmt.Errorf("%s does not answer: %w", config.Host, err)
	}
	took := time.Since(began)
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return "", err
	}
	e.config, e.Client = config, c
	return fmt.Sprintf("%s answers within %s; its id is %s", config.Host, took.Round(time.Millisecond), id), nil
}

func (e *examination) definitions() (string, error) {
	differ, err := hub.CompareDefinitions(e.ctx, e.config)
	switch {
	case err != nil:
		return "", err
	case len(differ) > 0:
		return "", fmt.Errorf("the hub has other schemas than this version of Sluice of %s: upgrade the older of the two; fields that the hub does not know are dropped", strings.Join(differ, ", "))
	}
	return "the hub has those of this version", nil
}

// longestSkew is the difference of clocks that is tolerated: dates of HTTP are in seconds.
const longestSkew = 3 * time.Second

// clock compares this machine's clock with the hub's, by which the leases of replicas and the lifetimes of
// credentials are kept.
func (e *examination) clock() (string, error) {
	caller, err := rest.HTTPClientFor(e.config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(e.ctx, http.MethodGet, e.config.Host+"/version", nil)
	if err != nil {
		return "", err
	}
	sent := time.Now()
	response, err := caller.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the hub for its time: %w", err)
	}
	_ = response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return "", skipped("the hub does not say what time it is")
	}
	skew := sent.Add(time.Since(sent) / 2).Sub(date.Add(500 * time.Millisecond)) // dates are cut to the second
	if skew.Abs() > longestSkew {
		return "", fmt.Errorf("this machine's clock differs from the hub's by %s: synchronise both (NTP)", skew.Round(time.Second))
	}
	return "this machine and the hub agree, to a second or so", nil
}

// leader looks for the process that reconciles. On a cluster, it waits until the leader renews its Lease.
func (e *examination) leader() (string, error) {
	if e.hub.embedded() {
		if pid := hub.Holder(e.hub.dataDir); pid != 0 {
			return fmt.Sprintf("process %d serves the data folder %s", pid, e.hub.dataDir), nil
		}
		return "", fmt.Errorf("no process serves the data folder %s: run `sluice serve`", e.hub.dataDir)
	}
	api, err := kubernetes.NewForConfig(e.config)
	if err != nil {
		return "", err
	}
	read := func(ctx context.Context) (*coordinationv1.LeaseSpec, error) {
		lease, err := api.CoordinationV1().Leases(e.hub.namespace).Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the Lease of the leader: %w; if there is none, no replica has led yet: see the pods of Sluice", err)
		}
		return &lease.Spec, nil
	}
	nobody := errors.New("nobody leads: see the pods of Sluice")
	first, err := read(e.ctx)
	switch {
	case apierrors.IsForbidden(err):
		return "", skipped("you may not read Leases in the namespace " + e.hub.namespace)
	case err != nil:
		return "", err
	case !isHeld(first):
		return "", nobody
	}
	now, err := renewed(e.cmd.Context(), first, read)
	switch {
	case err != nil:
		return "", err
	case now == nil:
		return "", fmt.Errorf("%s led last, has not renewed its Lease for %s, and no other replica has taken over: see the pods of Sluice", *first.HolderIdentity, patienceFor(first))
	case !isHeld(now):
		return "", nobody
	}
	return *now.HolderIdentity + " leads", nil
}

// keyset opens what the hub keeps sealed.
func (e *examination) keyset() (string, error) {
	path := e.hub.keysetPath()
	keys, err := seal.Load(path)
	if !e.hub.embedded() || errors.Is(err, fs.ErrNotExist) {
		return "", skipped("there is no keyset of this hub on this machine, in " + path)
	}
	if err != nil {
		return "", err
	}
	lacking, sealed, err := unopened(e.ctx, e.Client, e.hub.namespace, keys)
	switch {
	case err != nil:
		return "", err
	case len(lacking) > 0:
		return "", fmt.Errorf("%s does not open what is sealed in %s: restore the keyset with which it was sealed, or make anew what it sealed (docs/operating.md#keys)", path, some(lacking))
	case sealed == 0:
		return "", skipped("nothing is sealed yet")
	}
	return "opens what is sealed in " + count(sealed, "resource"), nil
}

func (e *examination) platforms() (string, error) {
	path := platformsPath(e.hub.dataDir)
	if _, err := os.Stat(path); !e.hub.embedded() || errors.Is(err, fs.ErrNotExist) {
		return "", skipped("there is no platforms file in a data folder on this machine")
	}
	if _, err := broker.LoadPlatforms(path); err != nil {
		return "", err
	}
	return path + " is valid", nil
}

func (e *examination) broker() (string, error) {
	content, err := os.ReadFile(brokerURLPath(e.hub.dataDir))
	url := strings.TrimSpace(string(content))
	if err != nil || url == "" || !e.hub.embedded() {
		return "", skipped("the broker's URL is not known on this machine")
	}
	ctx, cancel := context.WithTimeout(e.ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("%w: see whether this name leads to `sluice serve`, and whom its certificate is for", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s/readyz answers %s: see the log of `sluice serve`", url, response.Status)
	}
	return url + " is ready", nil
}

// restored looks for the mark of a restored hub.
func (e *examination) restored() (string, error) {
	mark, err := hub.Restored(e.ctx, e.config)
	if err != nil {
		return "", err
	}
	if mark != nil {
		return "", fmt.Errorf("the hub was %s: look at what `sluice collect` lists, then `sluice hub release`", mark)
	}
	return "nothing is held back", nil
}

// rules looks for clusters that get no orders with rules for pods, because they would not enforce them.
func (e *examination) rules() (string, error) {
	var policies v1alpha1.PlacementPolicyList
	if err := e.List(e.ctx, &policies, client.InNamespace(e.hub.namespace)); err != nil {
		return "", fmt.Errorf("list placement policies: %w", err)
	}
	first := slices.IndexFunc(policies.Items, func(p v1alpha1.PlacementPolicy) bool { return p.Spec.Workloads != nil })
	if first < 0 {
		return "no policy has rules for pods", nil
	}
	without, err := e.clusters(func(cluster *v1alpha1.MemberCluster) string {
		if enforced, _ := cluster.Holds(v1alpha1.ConditionRulesEnforced); cluster.Sells() && !enforced {
			return cluster.Name
		}
		return ""
	})
	if err != nil {
		return "", err
	}
	if len(without) == 0 {
		return "enforced by every cluster", nil
	}
	return "", fmt.Errorf("%s would not enforce the rules of %s or of other policies with `workloads`, and so gets no orders that they concern: run `sluice cluster renew` for each such cluster", some(without), policies.Items[first].Name)
}

// clusters returns what a function says of each member cluster, apart from those of which it says nothing.
func (e *examination) clusters(say func(*v1alpha1.MemberCluster) string) (said []string, err error) {
	err = pages.Each(e.ctx, e.Client, &v1alpha1.MemberClusterList{}, func(o client.Object) error {
		if text := say(o.(*v1alpha1.MemberCluster)); text != "" {
			said = append(said, text)
		}
		return nil
	}, client.InNamespace(e.hub.namespace))
	return said, err
}

// nodes looks for clusters that are ready, and have no node that takes pods.
func (e *examination) nodes() (string, error) {
	without, err := e.clusters(func(cluster *v1alpha1.MemberCluster) string {
		if why := nodeless(cluster); why != "" {
			return cluster.Name + ": " + why
		}
		return ""
	})
	if err != nil {
		return "", err
	}
	if len(without) == 0 {
		return "every cluster whose nodes are read has some that take pods", nil
	}
	return "", fmt.Errorf("nothing can be placed on cluster %s", some(without))
}

// resources counts what is not ready.
func (e *examination) resources() (string, error) {
	o, err := look(e.ctx, e.Client, e.hub.namespace)
	if err != nil {
		return "", err
	}
	if len(o.NotReady) == 0 {
		return "none needs attention", nil
	}
	var names []string
	for _, one := range o.NotReady {
		names = append(names, one.What+" "+one.Name)
	}
	return "", fmt.Errorf("not ready: %s; `sluice status` has the reasons", some(names))
}
