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
	gateway, pods, domain, tls string
	dns                        []string
	protocol                   v1alpha1.ExposureProtocol
	port                       int32
}

func (f *exposureFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.gateway, "public-gateway", "", "Gateway (Gateway API) for public ports of workloads, namespace/name or namespace/name/listener; empty removes it")
	flags.StringVar(&f.domain, "public-domain", "", "domain of the hosts of public ports, for instance apps.eu-1.example.org")
	bindChoice(cmd, &f.protocol, "public-protocol", "", "protocol between consumers and the Gateway", v1alpha1.ExposureHTTPS, v1alpha1.ExposureHTTP)
	flags.Int32Var(&f.port, "public-port", 0, "port at which consumers reach the Gateway (default 443, for http 80)")
	flags.StringVar(&f.tls, "public-tls", "", "listener of the Gateway that passes TLS through, and its port, for instance tls:8443; empty removes it")
	flags.StringSliceVar(&f.dns, "public-dns", nil, "public addresses of the Gateway, or one name, for which external-dns makes records of the hosts; empty makes none")
	flags.StringVar(&f.pods, "public-pods", "", "namespace of the pods from which the Gateway's traffic comes, if it is not the Gateway's own")
}

// describe applies to a cluster only the flags on the command line.
func (f *exposureFlags) describe(spec *v1alpha1.MemberClusterSpec, given given) error {
	if !given("public-gateway", "public-domain", "public-protocol", "public-port", "public-tls", "public-dns", "public-pods") {
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
