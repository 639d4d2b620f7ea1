package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// exposureFlags describe the Gateway by which everyone reaches public ports of workloads.
type exposureFlags struct {
	gateway, pods, domain, tls, tcp string
	dns, domains                    []string
	protocol                        v1alpha1.ExposureProtocol
	port                            int32
}

func (f *exposureFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.gateway, "public-gateway", "", "Gateway (Gateway API) for public ports of workloads, namespace/name or namespace/name/listener; empty removes it")
	flags.StringVar(&f.domain, "public-domain", "", "domain of the hosts of public ports, for instance apps.eu-1.example.org")
	bindChoice(cmd, &f.protocol, "public-protocol", "", "protocol between consumers and the Gateway", v1alpha1.ExposureHTTPS, v1alpha1.ExposureHTTP)
	flags.Int32Var(&f.port, "public-port", 0, "port at which consumers reach the Gateway (default 443, for http 80)")
	flags.StringVar(&f.tls, "public-tls", "", "listener of the Gateway that passes TLS through, and its port, for instance tls:8443; empty removes it")
	flags.StringVar(&f.tcp, "public-tcp", "", "ports for plain TCP, for each of which the Gateway has a listener tcp-PORT, for instance 30500-30531; empty removes them")
	flags.StringArrayVar(&f.domains, "public-consumer-domain", nil, "domain of a consumer's own whose hosts the Gateway serves, DOMAIN=PLATFORM[/ORGANIZATION[/SPACE]][@LISTENER], repeatable; empty removes all")
	flags.StringSliceVar(&f.dns, "public-dns", nil, "public addresses of the Gateway, or one name, for which external-dns makes records of the hosts; empty makes none")
	flags.StringVar(&f.pods, "public-pods", "", "namespace of the pods from which the Gateway's traffic comes, if it is not the Gateway's own")
}

// describe applies to a cluster only the flags on the command line.
func (f *exposureFlags) describe(spec *v1alpha1.MemberClusterSpec, given given) error {
	if !given("public-gateway", "public-domain", "public-protocol", "public-port", "public-tls", "public-tcp", "public-consumer-domain", "public-dns", "public-pods") {
		return nil
	}
	if given("public-gateway") && f.gateway == "" {
		spec.Exposure = nil
		return nil
	}
	e := spec.Exposure.DeepCopy()
	if e == nil {
		e = &v1alpha1.ClusterExposure{Protocol: f.protocol}
	}
	if given("public-gateway") {
		parts := strings.Split(f.gateway, "/")
		if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
			return fmt.Errorf("--public-gateway %q: want namespace/name or namespace/name/listener", f.gateway)
		}
		e.Gateway.Namespace, e.Gateway.Name, e.Gateway.Listener = parts[0], parts[1], strings.Join(parts[2:], "")
	}
	if given("public-domain") {
		e.Domain = f.domain
	}
	if given("public-protocol") {
		e.Protocol = f.protocol
	}
	if given("public-port") {
		e.Port = f.port
	}
	if given("public-tls") {
		tls, err := parsePassthrough(f.tls)
		if err != nil {
			return err
		}
		e.TLS = tls
	}
	if given("public-tcp") {
		tcp, err := parseRange(f.tcp)
		if err != nil {
			return err
		}
		e.TCP = tcp
	}
	if given("public-consumer-domain") {
		domains, err := parseDomains(f.domains)
		if err != nil {
			return err
		}
		e.Domains = domains
	}
	if given("public-dns") {
		e.DNS = nil
		if len(f.dns) > 0 {
			e.DNS = &v1alpha1.ExposureDNS{Targets: f.dns}
		}
	}
	if given("public-pods") {
		e.Gateway.PodNamespace = f.pods
	}
	if e.Gateway.Name == "" || e.Domain == "" {
		return errors.New("a Gateway goes with a domain, for instance --public-gateway infra/public/https --public-domain apps.eu-1.example.org")
	}
	spec.Exposure = e
	return nil
}

// parsePassthrough parses LISTENER:PORT; nil if it is empty.
func parsePassthrough(text string) (*v1alpha1.ExposureTLS, error) {
	if text == "" {
		return nil, nil
	}
	listener, number, found := strings.Cut(text, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	if !found || listener == "" || err != nil || port == 0 {
		return nil, fmt.Errorf("--public-tls %q: want listener:port", text)
	}
	return &v1alpha1.ExposureTLS{Listener: listener, Port: int32(port)}, nil
}

// parseRange parses FIRST-LAST; nil if it is empty.
func parseRange(text string) (*v1alpha1.ExposureTCP, error) {
	if text == "" {
		return nil, nil
	}
	from, to, found := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 10, 16)
	last, lastErr := strconv.ParseUint(to, 10, 16)
	if !found || err != nil || lastErr != nil || first == 0 || last < first {
		return nil, fmt.Errorf("--public-tcp %q: want first-last, for instance 30500-30531", text)
	}
	return &v1alpha1.ExposureTCP{First: int32(first), Last: int32(last)}, nil
}

// parseDomains parses domains of consumers. Those of several consumers are named once for each.
func parseDomains(all []string) (domains []v1alpha1.ExposureDomain, err error) {
	for _, text := range all {
		if text == "" {
			continue
		}
		name, of, found := strings.Cut(text, "=")
		who, listener, _ := strings.Cut(of, "@")
		if !found || name == "" {
			return nil, fmt.Errorf("--public-consumer-domain %q: want domain=platform, domain=platform/organization or domain=platform/organization/space, and @listener if there is one", text)
		}
		consumer, err := parseConsumer("public-consumer-domain", who)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(domains, func(d v1alpha1.ExposureDomain) bool { return d.Name == name })
		if at < 0 {
			at, domains = len(domains), append(domains, v1alpha1.ExposureDomain{Name: name})
		}
		domains[at].Consumers, domains[at].Listener = append(domains[at].Consumers, consumer), listener
	}
	return domains, nil
}
