// Package hosted installs controllers of other projects on a control plane of a test, where they run as programs of
// this host: their manifests are applied as they are, but what calls a Service calls the program.
package hosted

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// poll is how often a condition of starting up is looked at.
const poll = 50 * time.Millisecond

// Build runs a script of the source tree, which builds what is missing, and returns the folder that it prints. The
// path is the script's below the top of the tree, in which the working directory must be.
func Build(ctx context.Context, path string, args ...string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		script := filepath.Join(dir, filepath.FromSlash(path))
		if _, err := os.Stat(script); err == nil {
			out, err := exec.CommandContext(ctx, script, args...).Output()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return "", fmt.Errorf("%s: %w\n%s", script, err, exit.Stderr)
			}
			return strings.TrimSpace(string(out)), err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no %s here or above: run it from within the source tree", path)
		}
	}
}

// Apply creates objects from YAML documents, or brings those that are there up to date, each after the changes; see
// [ApplyObject].
func Apply(ctx context.Context, c client.Client, documents []byte, changes ...func(*unstructured.Unstructured)) error {
	objects, err := parse(documents)
	if err != nil {
		return err
	}
	for _, o := range objects {
		for _, change := range changes {
			change(o)
		}
		if err := ApplyObject(ctx, c, o); err != nil {
			return err
		}
	}
	return nil
}

// ApplyObject creates an object, or brings it up to date. It blocks while a definition that is new is not served yet, or
// a webhook does not answer yet, up to 30 s.
func ApplyObject(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	err := wait.PollUntilContextTimeout(ctx, poll, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsInternalError(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// HasCondition reports whether an object has a condition with status True.
func HasCondition(o *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(one any) bool {
		c, ok := one.(map[string]any)
		return ok && c["type"] == kind && c["status"] == "True"
	})
}

// parse returns the objects in YAML documents.
func parse(documents []byte) (objects []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// Server is the address at which a program answers over TLS, with its certificate for 127.0.0.1.
type Server struct {
	// Folder holds the certificate, its key, and who vouches for it: tls.crt, tls.key and ca.crt.
	Folder string
	// Port of 127.0.0.1 that the program will listen on.
	Port int
	// Authority is the certificate, in PEM, by which clients know the program.
	Authority []byte
}

// NewServer makes a folder with a certificate for a program that will listen on a port, which must be free.
func NewServer(folder string, port int) (*Server, error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	authority, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"tls.crt": authority, "tls.key": key, "ca.crt": authority} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	free, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	defer free.Close() // the program listens on it next
	return &Server{Folder: folder, Port: port, Authority: authority}, nil
}

// URL of a path of the program.
func (s *Server) URL(path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", s.Port, path) }

// ClientConfig of a webhook at a path of the program, as admission and conversion webhooks have it.
func (s *Server) ClientConfig(path string) map[string]any {
	return map[string]any{"url": s.URL(path), "caBundle": base64.StdEncoding.EncodeToString(s.Authority)}
}

// Redirect makes the webhooks of an admission webhook configuration call the program instead of a Service. It leaves
// other objects as they are.
func (s *Server) Redirect(o *unstructured.Unstructured) {
	hooks, found, _ := unstructured.NestedSlice(o.Object, "webhooks")
	if !found {
		return
	}
	for _, hook := range hooks {
		path, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "service", "path")
		hook.(map[string]any)["clientConfig"] = s.ClientConfig(path)
	}
	_ = unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

// Await blocks until the program listens, for at most a minute.
func (s *Server) Await(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, poll, time.Minute, true, func(context.Context) (bool, error) {
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port))
		if err != nil {
			return false, nil // not yet
		}
		return true, connection.Close()
	})
	if err != nil {
		return fmt.Errorf("nothing listens on port %d: %w", s.Port, err)
	}
	return nil
}
