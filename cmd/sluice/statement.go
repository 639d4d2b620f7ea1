package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription/controller"
)

// outputJWT prints statements that the broker signs, one a line.
const outputJWT outputFormat = "jwt"

// statements signs in the name of the broker of a hub.
type statements struct {
	hub       client.Reader
	namespace string
	keys      *seal.Keyset
}

// open returns how statements of a type are made, by the broker's present key.
func (s *statements) open(ctx context.Context, kind string) (market.Sign, error) {
	signer, err := controller.Signer(ctx, s.hub, s.namespace, s.keys)
	if err != nil {
		return nil, err
	}
	return func(claims map[string]any) (string, error) { return signer.Statement(kind, claims, time.Now()) }, nil
}

// of returns how the market makes statements of a type: none while the broker has no DID.
func (s *statements) of(kind string) market.Signer {
	return func(ctx context.Context) (market.Sign, error) {
		sign, err := s.open(ctx, kind)
		if errors.Is(err, controller.ErrNoDID) {
			return nil, nil
		}
		return sign, err
	}
}

// signFlags are the flags of commands that sign as the broker.
type signFlags struct{ keyset string }

func (f *signFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.keyset, "keyset", "", "file with the keys that open the broker's key, for -o jwt (default: the one that sluice serve was started with)")
}

// statements returns what signs; only an existing keyset is used.
func (f *signFlags) statements(hub *hubFlags, c client.Reader) (*statements, error) {
	path := f.keyset
	if path == "" {
		path = hub.keysetPath()
	}
	keys, err := seal.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--keyset: %w", err)
	}
	return &statements{hub: c, namespace: hub.namespace, keys: keys}, nil
}

// print signs claims and prints the statement.
func (f *signFlags) print(cmd *cobra.Command, hub *hubFlags, c client.Reader, kind string, claims map[string]any) error {
	by, err := f.statements(hub, c)
	if err != nil {
		return err
	}
	sign, err := by.open(cmd.Context(), kind)
	if err != nil {
		return err
	}
	statement, err := sign(claims)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), statement)
	return err
}
