{{/*
The agent's flags as variables: BWAGENT_<FLAG> of those that decide labels, which are for all commands, and
BWAGENT_RUN_<FLAG> of the others. What has no value is left out, but for the names of labels, of which three may be empty.
*/}}
{{- define "bwagent.settings" -}}
BWAGENT_LABEL_PREFIX: {{ .Values.labelPrefix | quote }}
BWAGENT_IB_LABEL_PREFIX: {{ .Values.ibLabelPrefix | quote }}
BWAGENT_ACCELERATOR_LABEL: {{ .Values.acceleratorLabel | quote }}
BWAGENT_TIER_LABEL: {{ .Values.tierLabel | quote }}
BWAGENT_FORMER_LABEL_PREFIXES: {{ join " " .Values.formerLabelPrefixes | quote }}
{{- with .Values.sources }}
BWAGENT_SOURCE: {{ join " " . | quote }}
{{- end }}
{{- with .Values.excludeDevices }}
BWAGENT_EXCLUDE_DEVICE: {{ join " " . | quote }}
{{- end }}
{{- with .Values.backendDevices }}
BWAGENT_BACKEND_DEVICE: {{ join " " . | quote }}
{{- end }}
{{- if .Values.openvswitch }}
BWAGENT_OPENVSWITCH: "true"
{{- end }}
{{- if .Values.tiers }}
BWAGENT_TIERS: "true"
{{- end }}
{{- with .Values.nvmlLibrary }}
BWAGENT_NVML_LIBRARY: {{ . | quote }}
{{- end }}
{{- with .Values.sysfsRoot }}
BWAGENT_SYSFS_ROOT: {{ . | quote }}
{{- end }}
{{- if .Values.events }}
BWAGENT_RUN_EVENTS: "true"
{{- end }}
{{- if .Values.policy.enabled }}
BWAGENT_RUN_REQUIRE_POLICY: "true"
{{- end }}
{{- range $flag, $value := .Values.run }}
{{- if $value }}
{{ printf "BWAGENT_RUN_%s" (snakecase $flag | upper) }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The names of labels in the policy, by the names of its variables. */}}
{{- define "bwagent.labelNames" -}}
prefix: {{ .Values.labelPrefix | quote }}
ibPrefix: {{ .Values.ibLabelPrefix | quote }}
accelerator: {{ .Values.acceleratorLabel | quote }}
tierLabel: {{ .Values.tierLabel | quote }}
formerPrefixes: {{ join " " .Values.formerLabelPrefixes | quote }}
{{- end }}
