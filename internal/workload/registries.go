package workload

import (
	"encoding/base64"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// registriesSecret is the Secret that images are pulled with. Components cannot have the name.
const registriesSecret = "sluice-registries"

// login is a user of a registry, as docker login stores it.
type login struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"`
}

// logins returns the users of registries, by the registries' hosts.
func (o *Order) logins(e *expressions) (map[string]login, error) {
	r := &rendering{order: o, expressions: e}
	logins := map[string]login{}
	for i, p := range o.Plan.PullSecrets {
		at := field.NewPath("pullSecrets").Index(i)
		registry := r.text(at.Child("registry"), p.Registry)
		username, password := r.text(at.Child("username"), p.Username), r.text(at.Child("password"), p.Password)
		if registry != "" {
			logins[registry] = login{username, password, base64.StdEncoding.EncodeToString([]byte(username + ":" + password))}
		}
	}
	if r.err != nil {
		return nil, &RefusedError{r.err.Error()}
	}
	return logins, nil
}

// pullAs makes the pods of objects use a Secret with the users of registries.
func pullAs(objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		path := inPodTemplate(o, "spec", "imagePullSecrets")
		if path == nil {
			continue
		}
		others, _, err := unstructured.NestedSlice(o.Object, path...)
		if err == nil {
			err = unstructured.SetNestedSlice(o.Object, append(others, map[string]any{"name": registriesSecret}), path...)
		}
		if err != nil {
			return refused("%s: imagePullSecrets: %v", describeObject(o), err)
		}
	}
	return nil
}

// registries returns the Secret with the users of registries, as Kubernetes reads it.
func registries(logins map[string]login, namespace string) (*unstructured.Unstructured, error) {
	document, err := json.Marshal(map[string]any{"auths": logins})
	if err != nil {
		return nil, err
	}
	r := &rendering{component: "registries"}
	secret := corev1ac.Secret(registriesSecret, namespace).WithLabels(r.labels()).
		WithType(corev1.SecretTypeDockerConfigJson).WithData(map[string][]byte{corev1.DockerConfigJsonKey: document})
	r.add(secret)
	if r.err != nil {
		return nil, r.err
	}
	return r.objects[0], nil
}
