package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
)

// liqoFlags configure a cluster's part in peerings.
type liqoFlags struct {
	namespace      string
	gatewayService corev1.ServiceType
	hub            bool
	consumers      []string
}

func (f *liqoFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.namespace, "liqo-namespace", names.DefaultNamespace, "namespace of Liqo, with --driver liqo")
	bindChoice(cmd, &f.gatewayService, "gateway-service", "", "type of the Service by which other clusters reach its Liqo gateways, with --driver liqo",
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	flags.BoolVar(&f.hub, "hub", false, "let consumers reach other clusters through this one, with --driver liqo")
	f.bindConsumers(flags)
}

func (f *liqoFlags) bindConsumers(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.consumers, "consumer", nil, "consumer that owns the cluster, platform[/organization[/space]] (repeatable), with --driver liqo; nothing is placed on the cluster, and peered capacity that the consumer buys may be delivered to it")
}

// describe applies to a cluster only the flags on the command line.
func (f *liqoFlags) describe(spec *v1alpha1.MemberClusterSpec, given given) error {
	if spec.Driver != v1alpha1.DriverLiqo {
		if given("hub", "consumer") {
			return errors.New("--hub and --consumer go with --driver liqo")
		}
		spec.Liqo, spec.Consumers = nil, nil // they belong to the driver liqo
		return nil
	}
	if spec.Liqo == nil {
		spec.Liqo = &v1alpha1.LiqoCluster{Namespace: f.namespace, GatewayService: f.gatewayService}
	}
	if given("liqo-namespace") {
		spec.Liqo.Namespace = f.namespace
	}
	if given("gateway-service") {
		spec.Liqo.GatewayService = f.gatewayService
	}
	if given("hub") {
		spec.Liqo.Hub = f.hub
	}
	if given("consumer") {
		spec.Consumers = nil
		for _, text := range f.consumers {
			ref, err := parseConsumer("consumer", text)
			if err != nil {
				return err
			}
			spec.Consumers = append(spec.Consumers, ref)
		}
	}
	if spec.Liqo.Hub && len(spec.Consumers) > 0 {
		return errors.New("--hub: a consumer's own cluster is no hub for others")
	}
	return nil
}

// parseConsumer parses platform[/organization[/space]].
func parseConsumer(flag, text string) (v1alpha1.ConsumerReference, error) {
	parts := strings.Split(text, "/")
	if len(parts) > 3 || parts[0] == "" || parts[len(parts)-1] == "" {
		return v1alpha1.ConsumerReference{}, fmt.Errorf("--%s %q: want platform, platform/organization or platform/organization/space", flag, text)
	}
	parts = append(parts, "", "")
	return v1alpha1.ConsumerReference{Platform: parts[0], Organization: parts[1], Space: parts[2]}, nil
}
