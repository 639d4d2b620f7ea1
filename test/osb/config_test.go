package osb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	// newest is the version that the suite speaks unless a spec says otherwise.
	newest = "2.17"
	// requestTimeout is the time that platforms in the field allow for one request.
	requestTimeout = 60 * time.Second
)

// config describes the broker under test. README.md lists the variables.
type config struct {
	url     string
	client  *http.Client
	strict  bool
	timeout time.Duration // of everything the suite waits for
	polling time.Duration // how often it looks

	platform         platform // who the suite is, unless a spec says otherwise
	previousPassword string
	token            string
	second           *platform // nil where the broker knows one platform only

	service           offering
	plan              plan // that specs provision
	otherPlan         plan // that specs change to
	otherService      *offering
	parameters        object // of every provision; nil sends none
	otherParameters   object // valid too, and different
	invalidParameters object

	pendingPlanID string // with pendingParameters, a provision stays in progress
	pending       object
	failingPlanID string // with failingParameters, an update fails
	failing       object
	asyncBind     bool
}

func configFromEnvironment() (config, error) {
	c := config{
		url:              strings.TrimSuffix(os.Getenv("OSB_URL"), "/"),
		strict:           os.Getenv("OSB_STRICT") == "1",
		timeout:          requestTimeout,
		polling:          50 * time.Millisecond,
		previousPassword: os.Getenv("OSB_PREVIOUS_PASSWORD"),
		token:            os.Getenv("OSB_TOKEN"),
		asyncBind:        os.Getenv("OSB_ASYNC_BIND") == "1",
		pendingPlanID:    os.Getenv("OSB_PENDING_PLAN_ID"),
		failingPlanID:    os.Getenv("OSB_FAILING_UPDATE_PLAN_ID"),
	}
	c.service.ID = os.Getenv("OSB_SERVICE_ID")
	c.plan.ID = os.Getenv("OSB_PLAN_ID")
	c.otherPlan.ID = os.Getenv("OSB_OTHER_PLAN_ID")
	c.platform = platform{username: os.Getenv("OSB_USERNAME"), password: os.Getenv("OSB_PASSWORD"), version: newest}
	if c.platform.username == "" {
		c.platform.token = c.token
	}
	if name := os.Getenv("OSB_PLATFORM2_USERNAME"); name != "" {
		c.second = &platform{username: name, password: os.Getenv("OSB_PLATFORM2_PASSWORD"), version: newest}
	}
	var errs []error
	for name, into := range map[string]*time.Duration{"OSB_TIMEOUT": &c.timeout, "OSB_POLLING_INTERVAL": &c.polling} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *into, err = time.ParseDuration(text); err != nil {
				errs = append(errs, fmt.Errorf("read %s: %w", name, err))
			}
		}
	}
	c.invalidParameters = object{"osb-conformance-no-such-parameter": true}
	for name, into := range map[string]*object{
		"OSB_PARAMETERS":                &c.parameters,
		"OSB_OTHER_PARAMETERS":          &c.otherParameters,
		"OSB_INVALID_PARAMETERS":        &c.invalidParameters,
		"OSB_PENDING_PARAMETERS":        &c.pending,
		"OSB_FAILING_UPDATE_PARAMETERS": &c.failing,
	} {
		if text := os.Getenv(name); text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				errs = append(errs, fmt.Errorf("read %s: %w", name, err))
			}
		}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	if file := os.Getenv("OSB_CA_FILE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("read OSB_CA_FILE: %w", err))
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			errs = append(errs, fmt.Errorf("no certificate in OSB_CA_FILE %s", file))
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	c.client = &http.Client{
		Transport: transport,
		Timeout:   requestTimeout,
		// A platform would lose the method and the body of a PUT on a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, errors.Join(errs...)
}

// discover completes c from the catalog: the service and the plans that the
// environment does not name are the first that can be bound and changed.
func (c *config) discover(ctx context.Context) {
	GinkgoHelper()
	var catalog catalog
	response := c.platform.catalog(ctx)
	response.mustBe(http.StatusOK)
	response.decode(&catalog)
	for i := range catalog.Services {
		switch s := catalog.Services[i]; {
		case c.service.Plans == nil && c.chooses(s):
			c.service = s
		case c.otherService == nil:
			c.otherService = &s
		}
	}
	Expect(c.service.Plans).NotTo(BeEmpty(), "the catalog has no service that can be bound and no OSB_SERVICE_ID that says which to use")
	plans := c.service.usable()
	c.plan = choosePlan(c.service.Plans, plans, c.plan.ID, "")
	c.otherPlan = choosePlan(c.service.Plans, plans, c.otherPlan.ID, c.plan.ID)
	if c.pendingPlanID == "" {
		c.pendingPlanID = c.plan.ID
	}
	if c.failingPlanID == "" {
		c.failingPlanID = c.plan.ID
	}
}

func (c *config) chooses(s offering) bool {
	if c.service.ID != "" {
		return s.ID == c.service.ID
	}
	return len(s.usable()) > 0
}

// choosePlan returns the plan with the id, or else the first usable one that is not taken.
func choosePlan(all, usable []plan, id, taken string) plan {
	if id == "" {
		all = usable
	}
	for _, p := range all {
		if p.ID == id || id == "" && p.ID != taken {
			return p
		}
	}
	return plan{}
}
