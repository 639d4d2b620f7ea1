package controlplane

import (
	"context"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// execute does what the container of a Job's pod would, as far as it is one of these commands; others end well at once.
//
//	false           fails
//	sleep           does not end
//	patch URL BODY  merges BODY into the object at the URL, as the pod's account; fails if it may not
//
// It returns the exit code, and whether the container ends at all.
func (k *kubelets) execute(ctx context.Context, pod *corev1.Pod) (exitCode int32, ends bool) {
	command := slices.Clone(pod.Spec.Containers[0].Command)
	for _, variable := range pod.Spec.Containers[0].Env { // as kubelets expand them; values from Secrets are not looked up
		for i := range command {
			command[i] = strings.ReplaceAll(command[i], "$("+variable.Name+")", variable.Value)
		}
	}
	if !isOfJob(pod) || len(command) == 0 {
		return 0, true
	}
	switch {
	case command[0] == "false":
		return 1, true
	case command[0] == "sleep":
		return 0, false
	case command[0] == "patch" && len(command) == 3:
		if err := k.patchAs(ctx, pod, command[1], command[2]); err != nil {
			return 22, true
		}
	}
	return 0, true
}

// patchAs sends a merge patch with a token of the pod's account, which is bound to the pod.
func (k *kubelets) patchAs(ctx context.Context, pod *corev1.Pod, to, body string) error {
	at, err := url.Parse(to)
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	token, err := k.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(k.config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(at.Path).Body([]byte(body)).Do(ctx).Error()
}
