package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The components, by the names of their binaries.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// The files of a control plane, relative to its folder.
const (
	caCert              = "ca.crt"
	caKey               = "ca.key"
	servingCert         = "apiserver.crt"
	servingKey          = "apiserver.key"
	serviceAccountKey   = "service-account.key"
	authentication      = "authentication.yaml"
	auditPolicy         = "audit.yaml"
	managerKubeconfig   = "controller-manager.kubeconfig"
	schedulerKubeconfig = "scheduler.kubeconfig"
	etcdSocket          = "etcd.sock"
	etcdPeerSocket      = "peer.sock"
	etcdData            = "etcd"
)

// anonymousHealth refuses anonymous requests except to the health endpoints, as a hardened cluster does.
const anonymousHealth = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions: [{path: /livez}, {path: /readyz}, {path: /healthz}]
`

// auditWrites has the API server record who wrote what, once it is done.
const auditWrites = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
`

// etcdFlags keep etcd off the network: it listens on a socket in the control plane's private folder.
func etcdFlags(dir string) []string {
	client := "unix://" + filepath.Join(dir, etcdSocket)
	return []string{
		"--data-dir=" + filepath.Join(dir, etcdData),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=http://localhost:2379",                   // must be host:port; nobody asks
		"--listen-peer-urls=unix://" + filepath.Join(dir, etcdPeerSocket), // it has no peers
		"--unsafe-no-fsync",                                               // nothing here outlives a crash of the machine
		"--log-level=warn",
	}
}

// apiServerFlags differ from kubeadm's in what a single process on a loopback address needs; admission and authorization
// are the same.
func apiServerFlags(dir string, port int, auditLog string) []string {
	flags := []string{
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--permit-port-sharing",           // with the socket that holds the port, see port.go
		"--endpoint-reconciler-type=none", // a loopback address is no valid endpoint
		"--etcd-servers=unix://" + filepath.Join(dir, etcdSocket),
		"--client-ca-file=" + filepath.Join(dir, caCert),
		"--tls-cert-file=" + filepath.Join(dir, servingCert),
		"--tls-private-key-file=" + filepath.Join(dir, servingKey),
		"--authentication-config=" + filepath.Join(dir, authentication),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(dir, serviceAccountKey),
		"--service-account-signing-key-file=" + filepath.Join(dir, serviceAccountKey),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged",
		"--profiling=false",
	}
	if auditLog != "" {
		flags = append(flags, "--audit-log-path="+auditLog, "--audit-policy-file="+filepath.Join(dir, auditPolicy), "--audit-log-mode=blocking")
	}
	return flags
}

// controllerManagerFlags run some controllers, or every one that is on by default, each under its own service account.
func controllerManagerFlags(dir string, controllers []string) []string {
	if len(controllers) == 0 {
		controllers = []string{"*"}
	}
	return []string{
		"--controllers=" + strings.Join(controllers, ","),
		"--kubeconfig=" + filepath.Join(dir, managerKubeconfig),
		"--secure-port=0",
		"--authentication-skip-lookup",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--root-ca-file=" + filepath.Join(dir, caCert),
		"--service-account-private-key-file=" + filepath.Join(dir, serviceAccountKey),
		"--cluster-signing-cert-file=" + filepath.Join(dir, caCert),
		"--cluster-signing-key-file=" + filepath.Join(dir, caKey),
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--namespace-sync-period=30s",
		"--resource-quota-sync-period=30s",
		"--profiling=false",
	}
}

func schedulerFlags(dir string) []string {
	return []string{
		"--kubeconfig=" + filepath.Join(dir, schedulerKubeconfig),
		"--secure-port=0",
		"--authentication-skip-lookup",
		"--leader-elect=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--profiling=false",
	}
}

// writeFiles makes the credentials of every component and returns the administrator's kubeconfig.
func writeFiles(dir, name string, port int) ([]byte, error) {
	ca, err := newAuthority(name)
	if err != nil {
		return nil, err
	}
	serving, err := ca.server(apiServer)
	if err != nil {
		return nil, err
	}
	_, tokenKey, err := newKey()
	if err != nil {
		return nil, err
	}
	admin, err := ca.kubeconfig(name, port, "admin", "system:masters")
	if err != nil {
		return nil, err
	}
	manager, err := ca.kubeconfig(name, port, "system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	scheduler, err := ca.kubeconfig(name, port, "system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	for file, data := range map[string][]byte{
		caCert:              ca.cert,
		caKey:               ca.pair.key,
		servingCert:         serving.cert,
		servingKey:          serving.key,
		serviceAccountKey:   tokenKey,
		authentication:      []byte(anonymousHealth),
		auditPolicy:         []byte(auditWrites),
		managerKubeconfig:   manager,
		schedulerKubeconfig: scheduler,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			return nil, fmt.Errorf("write credentials: %w", err)
		}
	}
	return admin, nil
}
