{{/*
Every name begins with `bwagent`, or has it in the name of the release: the policy recognizes the agent by it, in the
name of its account and of its Pods, of which a long one loses its end.
*/}}
{{- define "bwagent.name" -}}
{{- if contains "bwagent" .Release.Name }}{{ .Release.Name }}{{ else }}bwagent-{{ .Release.Name }}{{ end }}
{{- end }}

{{/*
The name of what belongs to no namespace. No namespace has a dot in its name, so that two releases never have the same.
*/}}
{{- define "bwagent.clusterName" -}}
{{- $name := include "bwagent.name" . -}}
{{ $name }}{{ if ne $name .Release.Namespace }}.{{ .Release.Namespace }}{{ end }}
{{- end }}

{{/* The name of what permits Events, by Role and by policy. */}}
{{- define "bwagent.eventsName" -}}
{{- $name := include "bwagent.name" . -}}
{{ $name }}-events{{ if ne $name .Release.Namespace }}.{{ .Release.Namespace }}{{ end }}
{{- end }}

{{/* The labels of every object: the chart's own, and commonLabels. */}}
{{- define "bwagent.labels" -}}
{{ include "bwagent.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "bwagent.ownLabels" -}}
app.kubernetes.io/name: bwagent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{/* As in manifests/base, whose DaemonSet a release can take over: a selector cannot be changed. */}}
{{- define "bwagent.selector" -}}
app.kubernetes.io/name: bwagent
{{- end }}

{{- define "bwagent.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}
