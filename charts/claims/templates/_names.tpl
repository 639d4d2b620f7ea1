{{- define "claims.labels" -}}
app.kubernetes.io/name: sluice-claims
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "claims.selector" -}}
app.kubernetes.io/name: sluice-claims
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- /* Rules in the namespaces whose claims are carried out. */}}
{{- define "claims.rules" -}}
# Consumers write these; the controller keeps a finalizer on them.
- apiGroups: [claims.sluice.dev]
  resources: [serviceclaims, bindingclaims]
  verbs: [get, list, watch, update]
- apiGroups: [claims.sluice.dev]
  resources: [serviceclaims/status, bindingclaims/status, bindingclaims/finalizers]
  verbs: [update]
# Credentials, and parameters from Secrets. None are listed or watched.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, update, delete]
# Events of claims.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
