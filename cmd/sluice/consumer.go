package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/osbclient"
)

// The commands of consumers speak nothing but OSB 2.17, so they work with any broker. They keep no state: the name
// of an instance is its id, and the broker knows the rest.

// consumerGroup is the group of these commands in the help.
const consumerGroup = "consumer"

// consumerFlags select a broker.
type consumerFlags struct {
	url, caFile string
	local       platformFlags
	platform    string
}

func (f *consumerFlags) bind(cmd *cobra.Command) {
	cmd.GroupID = consumerGroup
	flags := cmd.Flags()
	flags.StringVar(&f.url, "broker", "", "URL of the broker, without /v2 (default: $"+envURL+", or the sluice serve of the data folder)")
	flags.StringVar(&f.caFile, "ca-file", "", "file with the certificates (PEM) that the broker's is checked against, if they are not the system's")
	flags.StringVar(&f.local.dataDir, "data-dir", defaultDataDir(), "data folder of a sluice serve on this machine, if no broker is named")
	flags.StringVar(&f.platform, "platform", "default", "platform of that sluice serve in whose name the broker is called")
}

// consumerHelp ends the help of the consumers' commands.
const consumerHelp = `

The broker is any that speaks OSB 2.17. Its URL is --broker or $SLUICE_URL, the credentials for it are
$SLUICE_USERNAME and $SLUICE_PASSWORD, or $SLUICE_TOKEN. Without a URL, it is the sluice serve on this machine.`

// consumer calls one broker.
type consumer struct {
	*osbclient.Client
	cmd     *cobra.Command
	catalog *osbclient.Catalog // read on demand
}

// connect returns a consumer. It sends nothing.
func (f *consumerFlags) connect(cmd *cobra.Command) (*consumer, error) {
	at, err := brokerAccess{URL: cmp.Or(f.url, os.Getenv(envURL))}, error(nil)
	if at.URL != "" {
		at.Credentials, err = environmentCredentials()
	} else if at, err = f.local.access(f.platform); err != nil {
		err = fmt.Errorf("no broker is named with --broker or $%s, and there is none on this machine: %w", envURL, err)
	}
	if err != nil {
		return nil, err
	}
	roots, err := readBundle(f.caFile)
	if err != nil {
		return nil, err
	}
	client, err := at.open(roots)
	if err != nil {
		return nil, err
	}
	return &consumer{Client: client, cmd: cmd}, nil
}

// environmentCredentials returns the credentials for a broker in the environment, which must be of one kind.
func environmentCredentials() (osbclient.Credentials, error) {
	found := osbclient.Credentials{Username: os.Getenv(envUsername), Password: os.Getenv(envPassword), Token: os.Getenv(envToken)}
	if err := found.Check(); err != nil {
		return found, fmt.Errorf("credentials for the broker: set either $%s and $%s, or $%s", envUsername, envPassword, envToken)
	}
	return found, nil
}

// readBundle reads the file of --ca-file; nil if none is named.
func readBundle(caFile string) ([]byte, error) {
	if caFile == "" {
		return nil, nil
	}
	bundle, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	return bundle, nil
}

// open returns the broker's client, which checks certificates against a bundle (PEM); empty means the system's. It sends
// nothing.
func (at brokerAccess) open(bundle []byte) (*osbclient.Client, error) {
	opened, err := osbclient.New(osbclient.Config{
		URL: at.URL, Credentials: at.Credentials, CABundle: bundle,
		Addresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, // who runs this chose the broker
	})
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w", at.URL, err)
	}
	return opened, nil
}

// market returns the broker's catalog.
func (c *consumer) market() (*osbclient.Catalog, error) {
	if c.catalog != nil {
		return c.catalog, nil
	}
	catalog, err := c.Catalog(c.cmd.Context())
	if err != nil {
		return nil, err
	}
	c.catalog = catalog
	return catalog, nil
}

// offered is a plan of a service.
type offered struct {
	service *osbclient.Service
	plan    *osbclient.Plan
}

// serviceOf returns a service by its name or id.
func serviceOf(catalog *osbclient.Catalog, service string) (*osbclient.Service, error) {
	i := slices.IndexFunc(catalog.Services, func(s osbclient.Service) bool { return s.Name == service || s.ID == service })
	if i < 0 {
		return nil, fmt.Errorf("service %q is not offered; there is %s", service, cmp.Or(some(serviceNames(catalog)), "none"))
	}
	return &catalog.Services[i], nil
}

// find returns a plan by the names or ids of its service and itself. The plan may be empty if there is only one.
func (c *consumer) find(service, plan string) (offered, error) {
	catalog, err := c.market()
	if err != nil {
		return offered{}, err
	}
	found := offered{}
	if found.service, err = serviceOf(catalog, service); err != nil {
		return offered{}, err
	}
	plans := found.service.Plans
	p := slices.IndexFunc(plans, func(p osbclient.Plan) bool { return p.Name == plan || p.ID == plan })
	switch {
	case plan == "" && len(plans) == 1:
		p = 0
	case plan == "":
		return offered{}, fmt.Errorf("service %s: name a plan: %s", service, some(planNamesOf(found.service)))
	case p < 0:
		return offered{}, fmt.Errorf("service %s: plan %q is not offered; there is %s", service, plan, some(planNamesOf(found.service)))
	}
	found.plan = &plans[p]
	return found, nil
}

// offerOf returns the plan of ids. Of a plan that is not offered any more, it knows no more than these.
func (c *consumer) offerOf(serviceID, planID string) offered {
	if found, err := c.find(serviceID, planID); err == nil {
		return found
	}
	return offered{&osbclient.Service{ID: serviceID, Name: serviceID}, &osbclient.Plan{ID: planID, Name: planID}}
}

func serviceNames(catalog *osbclient.Catalog) (names []string) {
	for _, s := range catalog.Services {
		names = append(names, s.Name)
	}
	return names
}

func planNamesOf(s *osbclient.Service) (names []string) {
	for _, p := range s.Plans {
		names = append(names, p.Name)
	}
	return names
}

// completeOffer completes the name of a service, and then that of its plan, after so many other arguments.
func (f *consumerFlags) completeOffer(before int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err := f.connect(cmd)
		if err != nil || len(args) < before {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		catalog, err := c.market()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		switch args = args[before:]; len(args) {
		case 0:
			return serviceNames(catalog), cobra.ShellCompDirectiveNoFileComp
		case 1:
			if service, err := serviceOf(catalog, args[0]); err == nil {
				return planNamesOf(service), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// instanceFlags select a broker and what an instance there is of, for brokers that do not say that.
type instanceFlags struct {
	consumerFlags
	service, plan string
}

func (f *instanceFlags) bind(cmd *cobra.Command) {
	f.consumerFlags.bind(cmd)
	cmd.Flags().StringVar(&f.service, "service", "", "service of the instance, if the broker does not say it")
	cmd.Flags().StringVar(&f.plan, "plan", "", "plan of the instance, if the broker does not say it")
}

// open returns a consumer, and what an instance is of.
func (f *instanceFlags) open(cmd *cobra.Command, instance string) (*consumer, offered, error) {
	c, err := f.connect(cmd)
	if err != nil {
		return nil, offered{}, err
	}
	if f.service != "" {
		of, err := c.find(f.service, f.plan)
		return c, of, err
	}
	fetched, err := c.FetchInstance(cmd.Context(), instance, "", "")
	switch {
	case isStatus(err, http.StatusNotFound):
		return nil, offered{}, fmt.Errorf("there is no service instance %q, or its broker does not show it: name what it is of with --service and --plan", instance)
	case err != nil:
		return nil, offered{}, fmt.Errorf("%s: %w", instance, err)
	}
	return c, c.offerOf(fetched.ServiceID, fetched.PlanID), nil
}

// isStatus reports whether a broker answered with a status.
func isStatus(err error, status int) bool {
	answer := (*osbclient.Error)(nil)
	return errors.As(err, &answer) && answer.Status == status
}

// patience says how long a command waits for an operation.
type patience time.Duration

func (p *patience) bind(cmd *cobra.Command) {
	cmd.Flags().DurationVar((*time.Duration)(p), "wait", 30*time.Minute, "how long to wait until it is done; 0 does not wait")
}

// Times between two polls, unless the broker asks for another one.
const (
	firstPoll = 200 * time.Millisecond
	lastPoll  = 3 * time.Second
)

// await polls an operation until it ends, and tells meanwhile what the broker says of it. It reports whether the
// operation has ended: not if nobody wants to wait.
func (c *consumer) await(what string, p patience, accepted osbclient.Accepted, poll func(ctx context.Context) (osbclient.Operation, error)) (bool, error) {
	if accepted.Done {
		return true, nil
	}
	if p == 0 {
		c.tell("%s is under way", what)
		return false, nil
	}
	ctx, cancel := context.WithTimeout(c.cmd.Context(), time.Duration(p))
	defer cancel()
	began, pause, said := time.Now(), firstPoll, ""
	for asked := accepted.RetryAfter; ; {
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("%s has not ended after %s, and goes on: `sluice show` tells how far it is", what, time.Since(began).Round(time.Second))
		case <-time.After(cmp.Or(asked, pause)):
		}
		pause = min(pause*3/2, lastPoll)
		polled, err := osbclient.Polled(poll(ctx))
		if answer := (*osbclient.Error)(nil); errors.As(err, &answer) && (answer.Repeatable() || ctx.Err() != nil) {
			asked = answer.RetryAfter
			continue
		}
		switch {
		case err != nil:
			return false, err
		case polled.State == osbclient.Succeeded:
			return true, nil
		case polled.State == osbclient.Failed:
			return true, fmt.Errorf("%s failed: %s", what, cmp.Or(polled.Description, "the broker does not say why"))
		}
		asked = polled.RetryAfter
		if polled.Description != said {
			said = polled.Description
			c.tell("%s: %s (%s)", what, said, time.Since(began).Round(100*time.Millisecond))
		}
	}
}

// tell writes a line for people, beside the output.
func (c *consumer) tell(format string, args ...any) {
	fmt.Fprintln(c.cmd.ErrOrStderr(), printable(fmt.Sprintf(format, args...)))
}
