package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// readerFlags describe the source of a cluster's capacity.
type readerFlags struct {
	name      string
	address   string
	protocol  v1alpha1.ReaderProtocol
	period    time.Duration
	caFile    string
	tokenFile string
	token     *v1alpha1.ClusterAccess // of the file, once it is stored
}

// ofExternal are the flags that go with --reader external.
var ofExternal = []string{"reader-address", "reader-protocol", "reader-period", "reader-ca-file", "reader-token-file"}

func (f *readerFlags) bind(cmd *cobra.Command) {
	bindReader(cmd, &f.name)
	flags := cmd.Flags()
	flags.StringVar(&f.address, "reader-address", "", "HOST:PORT of an external reader")
	bindChoice(cmd, &f.protocol, "reader-protocol", "", "gRPC service of an external reader", v1alpha1.ReaderProtocolV1, v1alpha1.ReaderProtocolPaper)
	flags.DurationVar(&f.period, "reader-period", 30*time.Second, "time between two reads of an external reader that notifies Sluice of no change, in whole seconds")
	flags.StringVar(&f.caFile, "reader-ca-file", "", "file with the authorities of an external reader's certificate, in PEM, if they are not the system's")
	flags.StringVar(&f.tokenFile, "reader-token-file", "", "file with a bearer token for an external reader")
}

func bindReader(cmd *cobra.Command, reader *string) {
	bindChoice(cmd, reader, "reader", "", "source of the cluster's capacity: its nodes, what is declared (--capacity), or an external reader (--reader-address); the last two need no right to nodes",
		v1alpha1.ReaderNodes, v1alpha1.ReaderDeclared, v1alpha1.ReaderExternal)
}

// describe writes the source of the capacity; --capacity has been written before.
func (f *readerFlags) describe(spec *v1alpha1.MemberClusterSpec, given given) error {
	name := f.name
	switch {
	case given("reader"):
	case given("capacity"):
		name = v1alpha1.ReaderDeclared
	case given(ofExternal...):
		name = v1alpha1.ReaderExternal
	default:
		return nil
	}
	if name != v1alpha1.ReaderDeclared && given("capacity") {
		return fmt.Errorf("--reader %s goes without --capacity, which declares what is read otherwise", name)
	}
	if name != v1alpha1.ReaderExternal && given(ofExternal...) {
		return errors.New("--reader-address and the flags like it go with --reader external")
	}
	switch name {
	case v1alpha1.ReaderNodes:
		spec.Capacity, spec.Reader = nil, nil
	case v1alpha1.ReaderDeclared:
		if spec.Reader = nil; len(spec.Capacity) == 0 {
			return errors.New("--reader declared needs --capacity, for instance cpu=8,memory=32Gi,pods=110")
		}
	case v1alpha1.ReaderExternal:
		spec.Capacity = nil
		return f.describeExternal(spec, given)
	}
	return nil
}

func (f *readerFlags) describeExternal(spec *v1alpha1.MemberClusterSpec, given given) error {
	r := &v1alpha1.ExternalReader{}
	if spec.Reader != nil {
		r = spec.Reader.DeepCopy()
	}
	if given("reader-address") {
		r.Address = f.address
	}
	if r.Address == "" {
		return errors.New("--reader external needs --reader-address HOST:PORT")
	}
	if given("reader-protocol") || r.Protocol == "" {
		r.Protocol = f.protocol
	}
	if given("reader-period") || r.PeriodSeconds == 0 {
		if f.period < time.Second || f.period%time.Second != 0 {
			return fmt.Errorf("--reader-period %s: want whole seconds", f.period)
		}
		r.PeriodSeconds = int32(min(f.period/time.Second, 1<<30))
	}
	if given("reader-ca-file") {
		bundle, err := os.ReadFile(f.caFile)
		if err != nil {
			return fmt.Errorf("--reader-ca-file: %w", err)
		}
		r.CABundle = bundle
	}
	if f.token != nil {
		r.Token = f.token
	}
	spec.Reader = r
	return nil
}
