package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
)

// liqoFlags say how a cluster takes part in peerings.
type liqoFlags struct {
	namespace, gatewayService string
	hub                       bool
	consumers                 []string
}

func (f *liqoFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespace, "liqo-namespace", names.DefaultNamespace, "namespace that Liqo is installed in, with --driver liqo")
	flags.StringVar(&f.gatewayService, "gateway-service", string(corev1.ServiceTypeLoadBalancer), "how other clusters reach its gateways, with --driver liqo: LoadBalancer or NodePort")
	flags.BoolVar(&f.hub, "hub", false, "consumers may reach other clusters through this one, with --driver liqo")
	f.bindConsumers(flags)
}

func (f *liqoFlags) bindConsumers(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.consumers, "consumer", nil, "whose own cluster this is, platform[/organization[/space]] (repeatable), with --driver liqo: nothing is placed there, and what they buy may be delivered to it")
}

// describe adds what the flags say to a cluster.
func (f *liqoFlags) describe(cluster *v1alpha1.MemberCluster) error {
	if cluster.Spec.Driver != v1alpha1.DriverLiqo {
		if f.hub || len(f.consumers) > 0 {
			return errors.New("--hub and --consumer go with --driver liqo")
		}
		return nil
	}
	if f.hub && len(f.consumers) > 0 {
		return errors.New("--hub: a consumer's own cluster is no hub for others")
	}
	cluster.Spec.Liqo = &v1alpha1.LiqoCluster{Namespace: f.namespace, GatewayService: corev1.ServiceType(f.gatewayService), Hub: f.hub}
	for _, text := range f.consumers {
		ref, err := parseConsumer(text)
		if err != nil {
			return err
		}
		cluster.Spec.Consumers = append(cluster.Spec.Consumers, ref)
	}
	return nil
}

// parseConsumer reads platform[/organization[/space]].
func parseConsumer(text string) (v1alpha1.ConsumerReference, error) {
	parts := strings.Split(text, "/")
	if len(parts) > 3 || parts[0] == "" || parts[len(parts)-1] == "" {
		return v1alpha1.ConsumerReference{}, fmt.Errorf("--consumer %q: want platform, platform/organization or platform/organization/space", text)
	}
	parts = append(parts, "", "")
	return v1alpha1.ConsumerReference{Platform: parts[0], Organization: parts[1], Space: parts[2]}, nil
}
