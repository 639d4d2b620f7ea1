package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/server"
)

// TestAPresentationServesOneOperationOnce: an intercepted presentation is useless.
func TestAPresentationServesOneOperationOnce(t *testing.T) {
	w := newWorld(t)
	provider := newParty(t, "provider")
	w.provider("eins", provider)
	credential := w.sign(provider, draftOf(provider, "DE"))[0]
	paths := []string{"/selfdescriptions", "/selfdescriptions/verify", "/selfdescriptions/" + selfdescription.DigestOf(credential).String() + "/revoke"}
	if a, status := w.present(provider, paths[0], credential); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, a.Description)
	}
	w.eventually("the credential is in the cache", func() string {
		name := v1alpha1.SelfDescriptionName(selfdescription.DigestOf(credential))
		if err := w.cached.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &v1alpha1.SelfDescription{}); err != nil {
			return err.Error()
		}
		return ""
	})

	for _, made := range paths[:2] {
		token := w.presentation(provider, made, credential)
		for _, path := range paths {
			if path == made {
				continue
			}
			var a answer
			if status := w.post(path, selfdescription.MediaTypePresentation, token, &a); status != http.StatusUnprocessableEntity || !strings.Contains(a.Description, "/nonce: is none that this broker gave out to") {
				t.Errorf("made for %s, it is answered %d by %s: %s", made, status, path, a.Description)
			}
		}
	}

	t.Run("for which its holder signs, whatever it was told the nonce is for", func(t *testing.T) {
		for _, says := range []selfdescription.Operation{"", selfdescription.OperationVerify} {
			token, err := provider.signer.Presentation([]string{credential},
				selfdescription.Expect{Audience: broker, Nonce: w.nonce(selfdescription.OperationRevoke), Operation: says}, time.Now())
			must(t, err)
			var a answer
			if status := w.post(paths[2], selfdescription.MediaTypePresentation, token, &a); status != http.StatusUnprocessableEntity || !strings.Contains(a.Description, "/operation") {
				t.Errorf("a presentation to %q withdrew the credential: %d: %s", says, status, a.Description)
			}
		}
	})

	t.Run("and by one replica", func(t *testing.T) {
		replicas := []string{w.server.URL, w.replica().URL, w.replica().URL, w.replica().URL}
		token := w.presentation(provider, paths[0], credential)
		answers := make([]int, len(replicas))
		var all sync.WaitGroup
		for i, url := range replicas {
			all.Go(func() {
				response, err := http.Post(url+paths[0], selfdescription.MediaTypePresentation, strings.NewReader(token))
				if err != nil {
					t.Error(err)
					return
				}
				_ = response.Body.Close()
				answers[i] = response.StatusCode
			})
		}
		all.Wait()
		taken := 0
		for _, status := range answers {
			if status == http.StatusCreated {
				taken++
			} else if status != http.StatusUnprocessableEntity {
				t.Errorf("a replica answered %d", status)
			}
		}
		if taken != 1 {
			t.Errorf("%d replicas took one presentation: %v", taken, answers)
		}
		var a answer
		if w.post(paths[0], selfdescription.MediaTypePresentation, token, &a); !strings.Contains(a.Description, "/nonce: has been used") {
			t.Errorf("once more it is answered: %s", a.Description)
		}
	})
}

// TestAPresentationLogsIn: a provider's, once, and only one that was made for it.
func TestAPresentationLogsIn(t *testing.T) {
	w := newWorld(t)
	provider, stranger := newParty(t, "provider"), newParty(t, "stranger")
	w.provider("eins", provider)
	login := server.Login(w.options)
	made := func(by party, operation selfdescription.Operation) string {
		token, err := by.signer.Presentation(nil, selfdescription.Expect{Audience: broker, Nonce: w.nonce(operation), Operation: operation}, time.Now())
		must(t, err)
		return token
	}
	token := made(provider, selfdescription.OperationLogin)
	if got, err := login(t.Context(), token); err != nil || got != "eins" {
		t.Errorf("got %q, %v", got, err)
	}
	for why, token := range map[string]string{
		"/nonce: has been used":                token,
		"/nonce: is none that this broker":     made(provider, selfdescription.OperationPresent),
		"is not a JWT in compact":              "nothing",
		"refused at step":                      made(stranger, selfdescription.OperationLogin), // of whom nobody knows a key
		"/nonce: is missing":                   "e30.e30.e30",
		"to login; ask for one at /selfdescri": made(provider, selfdescription.OperationVerify),
	} {
		refused := (*server.Error)(nil)
		if got, err := login(t.Context(), token); got != "" || !errors.As(err, &refused) || !strings.Contains(err.Error(), why) {
			t.Errorf("got %q, %v; want it refused: %s", got, err, why)
		}
	}
}

// TestACredentialIsOfWhomItIsAbout: the first provider that presented a credential can neither
// withhold it from the provider that it is about, nor withdraw it.
func TestACredentialIsOfWhomItIsAbout(t *testing.T) {
	w := newWorld(t)
	provider, rival, notary := newParty(t, "provider"), newParty(t, "rival"), newParty(t, "notary")
	w.provider("eins", provider)
	w.provider("rival", rival)
	must(t, w.Create(t.Context(), &v1alpha1.TrustedIssuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "notary"},
		Spec: v1alpha1.TrustedIssuerSpec{Identified: notary.identified(t), Assurance: v1alpha1.AssuranceNotary,
			Types: []string{"VatID", selfdescription.TypeCertification}},
	}))
	own := w.sign(provider, draftOf(provider, "DE"))
	w.eventually("the provider presents its own", func() string {
		a, status := w.present(provider, "/selfdescriptions", own...)
		return fmt.Sprint(a.Description, map[bool]string{false: fmt.Sprint(status)}[status == http.StatusCreated])
	})
	number, err := notary.signer.Credential(selfdescription.Document{
		Subject:   map[string]any{"id": "https://provider.example/sd/vat#subject", "type": "VatID", "vatID": "DE123456789"},
		ValidFrom: time.Now().Add(-time.Minute), ValidUntil: time.Now().Add(time.Hour),
	})
	must(t, err)
	for name, credential := range map[string]string{
		"by the id of its subject":                number,
		"by the digests of the credentials in it": w.certify(notary, "ISO/IEC 27001", own...),
	} {
		t.Run(name, func(t *testing.T) {
			digest := selfdescription.DigestOf(credential)
			revoke := "/selfdescriptions/" + digest.String() + "/revoke"
			stored := func() *v1alpha1.SelfDescription {
				sd := &v1alpha1.SelfDescription{}
				must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: v1alpha1.SelfDescriptionName(digest)}, sd))
				return sd
			}
			w.eventually("the rival presents it", func() string {
				a, status := w.present(rival, "/selfdescriptions", credential)
				return fmt.Sprint(a.Description, map[bool]string{false: fmt.Sprint(status)}[status == http.StatusCreated])
			})
			w.eventually("the rival may not withdraw it", func() string {
				_, status := w.present(rival, revoke, credential)
				if status == http.StatusOK {
					t.Fatal("the rival withdrew it")
				}
				return map[bool]string{false: fmt.Sprint("status ", status)}[status == http.StatusForbidden]
			})
			for _, row := range []struct {
				party
				status int
				says   string
			}{{provider, http.StatusCreated, ""}, {rival, http.StatusConflict, "counts for provider eins"}} {
				if a, status := w.present(row.party, "/selfdescriptions", credential); status != row.status || !strings.Contains(a.Description, row.says) {
					t.Fatalf("%s presents it: status %d: %s", row.did, status, a.Description)
				}
				if sd := stored(); sd.Spec.Provider != "eins" || sd.Spec.Revoked {
					t.Errorf("after %s presented it, it is of %q, revoked %t", row.did, sd.Spec.Provider, sd.Spec.Revoked)
				}
			}
			w.eventually("the provider withdraws it", func() string {
				a, status := w.present(provider, revoke, credential)
				return fmt.Sprint(a.Description, map[bool]string{false: fmt.Sprint(status)}[status == http.StatusOK])
			})
			w.eventually("nobody is told that it was taken once it is withdrawn", func() string {
				a, status := w.present(provider, "/selfdescriptions", credential)
				return map[bool]string{false: fmt.Sprint(status, a.Description)}[status == http.StatusUnprocessableEntity && strings.Contains(a.Description, "withdrawn here")]
			})
		})
	}
}

// overtaken reads the hub. Directly after each of the first two reads of a credential, a controller writes it.
type overtaken struct {
	client.Reader
	*world
	reads atomic.Int32
}

func (o *overtaken) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	err := o.Reader.Get(ctx, key, obj, options...)
	if sd, is := obj.(*v1alpha1.SelfDescription); is && err == nil && o.reads.Add(1) <= 2 {
		written := sd.DeepCopy()
		must(o.T, retry.RetryOnConflict(retry.DefaultRetry, func() error { // the controllers may be writing it, too
			must(o.T, o.Client.Get(ctx, key, written))
			metav1.SetMetaDataAnnotation(&written.ObjectMeta, "reads", fmt.Sprint(o.reads.Load()))
			return o.Update(ctx, written)
		}))
	}
	return err
}

// TestAProviderIsNotBotheredWithWritesOfOthers: a request that meets the write of a controller is repeated here.
func TestAProviderIsNotBotheredWithWritesOfOthers(t *testing.T) {
	w := newWorld(t)
	provider, rival := newParty(t, "provider"), newParty(t, "rival")
	w.provider("eins", provider)
	w.provider("rival", rival)
	own := w.sign(provider, draftOf(provider, "DE"))[0]
	w.eventually("the rival presents it", func() string {
		a, status := w.present(rival, "/selfdescriptions", own)
		return fmt.Sprint(a.Description, map[bool]string{false: fmt.Sprint(status)}[status == http.StatusCreated])
	})
	for _, path := range []string{"/selfdescriptions", "/selfdescriptions/" + selfdescription.DigestOf(own).String() + "/revoke"} {
		live := w.options.Live
		w.options.Live = &overtaken{Reader: live, world: w}
		w.server, w.options.Live = w.replica(), live
		if a, status := w.present(provider, path, own); status >= 300 {
			t.Errorf("%s: status %d: %s", path, status, a.Description)
		}
	}
}

// TestWhatTheBrokerSignedIsItsOwn: it can be neither taken over nor withdrawn.
func TestWhatTheBrokerSignedIsItsOwn(t *testing.T) {
	w := newWorldOf(t, organisation())
	provider := newParty(t, "provider")
	w.provider("eins", provider)
	var stored v1alpha1.SelfDescription
	w.eventually("the broker describes itself", func() string {
		var list v1alpha1.SelfDescriptionList
		must(t, w.List(t.Context(), &list, client.InNamespace(w.namespace)))
		if len(list.Items) == 0 || list.Items[0].Status.State != v1alpha1.CredentialVerified {
			return "nothing is verified"
		}
		stored = list.Items[0]
		return ""
	})
	digest := selfdescription.DigestOf(stored.Spec.Credential).String()
	if _, status := w.present(provider, "/selfdescriptions", stored.Spec.Credential); status != http.StatusCreated {
		t.Errorf("presenting it is answered %d", status)
	}
	if _, status := w.present(provider, "/selfdescriptions/"+digest+"/revoke", stored.Spec.Credential); status != http.StatusForbidden {
		t.Errorf("withdrawing it is answered %d", status)
	}
	must(t, w.Get(t.Context(), client.ObjectKeyFromObject(&stored), &stored))
	if stored.Spec.Provider != "" || stored.Spec.Revoked {
		t.Errorf("it is of %q, revoked %t", stored.Spec.Provider, stored.Spec.Revoked)
	}
}
