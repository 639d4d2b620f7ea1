package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// credentialProviders is how many providers presented the stored credentials.
const credentialProviders = 100

// measureTrust measures a start on a hub that holds many credentials, all of which
// are verified again.
func measureTrust(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "Do credentials that are verified again after a restart delay it?",
		note: fmt.Sprintf("Embedded hub with so many credentials of %d providers, of which the keys are known, written to it while "+
			"Sluice was down. Ready is from the start of the process until /readyz says so; verified is when the controller has been "+
			"through all of them, one at a time so that a core is left to whoever serves. The process was killed before.", credentialProviders),
		header: []string{"credentials", "ready", "all verified", "bar", ""},
	}
	const bar = 5 * time.Second
	dataDir := filepath.Join(b.folder, "trust")
	stored := 0
	for _, count := range pick(b, []int{100, 1000, 10000}, []int{50, 100}) {
		b.say("trust: store %d credentials", count)
		err := whileDown(ctx, dataDir, func(c client.Client, namespace string) error {
			return storeCredentials(ctx, c, namespace, stored, count)
		})
		if err != nil {
			return t, err
		}
		stored = count
		for _, measured := range pick(b, []bool{false, true}, []bool{true}) { // once to verify new ones, once to measure
			b.say("trust: start with %d credentials", count)
			ready, verified, err := b.verifyAgain(ctx, dataDir, count)
			if err != nil {
				return t, err
			}
			if measured {
				limit, met := "", ""
				if count == 10000 {
					limit, met = fmt.Sprintf("ready ≤ %s", bar), verdict(ready <= bar)
				}
				t.add(fmt.Sprint(count), seconds(ready), seconds(verified), limit, met)
			}
		}
	}
	return t, nil
}

// verifyAgain starts Sluice, waits until it has been through all credentials, and kills it.
func (b *bench) verifyAgain(ctx context.Context, dataDir string, credentials int) (ready, verified time.Duration, err error) {
	began := time.Now()
	s, err := b.serve(ctx, dataDir)
	if err != nil {
		return 0, 0, err
	}
	defer s.kill()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err = s.awaitLooks(ctx, "selfdescription", credentials)
	return s.ready, time.Since(began), err
}

// storeCredentials writes providers and what they present, from one number up to another.
func storeCredentials(ctx context.Context, c client.Client, namespace string, from, to int) error {
	signers := make([]*selfdescription.Signer, credentialProviders)
	for n := range signers {
		var err error
		if signers[n], err = storeProvider(ctx, c, namespace, n, from); err != nil {
			return err
		}
	}
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(32)
	for n := from; n < to; n++ {
		writers.Go(func() error {
			signer := signers[n%credentialProviders]
			compact, err := signer.Credential(selfdescription.Document{
				ValidFrom: time.Now(), ValidUntil: time.Now().AddDate(0, 1, 0),
				Subject: map[string]any{
					"id": fmt.Sprintf("https://provider.example/%d", n), "type": selfdescription.TypeClusterBinding,
					"offering":   map[string]any{"id": fmt.Sprintf("https://provider.example/offering/%d", n)},
					"clusterUID": fmt.Sprint(n), "apiServerKeyHash": selfdescription.DigestOf(fmt.Sprint(n)).SRI(),
				},
			})
			if err != nil {
				return err
			}
			return c.Create(ctx, &v1alpha1.SelfDescription{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact))},
				Spec:       v1alpha1.SelfDescriptionSpec{Credential: compact, Presenter: v1alpha1.Presenter{Provider: providerName(n % credentialProviders)}},
			})
		})
	}
	return writers.Wait()
}

func providerName(n int) string { return fmt.Sprintf("provider-%d", n) }

// storeProvider writes a provider with a key of its own for each batch of credentials,
// beside those it has.
func storeProvider(ctx context.Context, c client.Client, namespace string, n, batch int) (*selfdescription.Signer, error) {
	name := fmt.Sprintf("did:web:%s.example", providerName(n))
	key, err := selfdescription.GenerateKey("ES256", fmt.Sprintf("%s#key-%d", name, batch))
	if err != nil {
		return nil, err
	}
	signer, err := selfdescription.NewSigner(key)
	if err != nil {
		return nil, err
	}
	p := &v1alpha1.Provider{}
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: providerName(n)}, p)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	set := jose.JSONWebKeySet{}
	if p.Spec.Keys != nil {
		if err := json.Unmarshal(p.Spec.Keys.Raw, &set); err != nil {
			return nil, err
		}
	}
	set.Keys = append(set.Keys, signer.Public())
	raw, marshalErr := json.Marshal(set)
	if marshalErr != nil {
		return nil, marshalErr
	}
	p.Spec.Identified = v1alpha1.Identified{DID: name, Keys: &runtime.RawExtension{Raw: raw}}
	if err == nil {
		return signer, c.Update(ctx, p)
	}
	p.Namespace, p.Name = namespace, providerName(n)
	return signer, c.Create(ctx, p)
}
