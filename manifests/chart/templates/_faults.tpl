{{/* The contradictions in the values, as a JSON list of sentences. */}}
{{- define "bwagent.contradictions" -}}
{{- $faults := list }}
{{- $sources := .Values.sources }}
{{- $devices := .Values.privileges.hostDevices }}
{{- $raw := or .Values.privileges.netRaw $devices }}
{{- $plugin := contains "/" (keys (.Values.resources.limits | default dict) | join " ") }}
{{- if not .Values.image.repository }}
{{- $faults = append $faults "image.repository is empty, and no registry has the image: build it, push it to yours, and say where it is, as in image.repository=registry.example.com/bwagent" }}
{{- else if not (regexMatch `^(([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?/)?[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$` .Values.image.repository) }}
{{- $faults = append $faults (printf "image.repository=%s is no name of an image: lower case behind the registry, and neither tag (image.tag) nor digest (image.digest), as in image.repository=registry.example.com/bwagent" .Values.image.repository) }}
{{- end }}
{{- range .Values.droppedSources }}
{{- if or (not $sources) (has . $sources) }}
{{- $faults = append $faults (printf "droppedSources has %s, which sources reads" .) }}
{{- end }}
{{- end }}
{{- if and (not $sources) (not $devices) }}
{{- $faults = append $faults "sources is empty, which means all, without privileges.hostDevices: name the sources, or take profiles/full.yaml" }}
{{- end }}
{{- if and (has "lldp" $sources) (not $raw) }}
{{- $faults = append $faults "sources has lldp without privileges.netRaw" }}
{{- end }}
{{- range list "ib" "nvml" }}
{{- if and (has . $sources) (not $devices) (not $plugin) }}
{{- $faults = append $faults (printf "sources has %s without privileges.hostDevices, or a device plugin's resource in resources.limits" .) }}
{{- end }}
{{- end }}
{{- if and .Values.privileges.netRaw $sources (not (has "lldp" $sources)) }}
{{- $faults = append $faults "privileges.netRaw is for the source lldp, which sources leaves out" }}
{{- end }}
{{- if and $devices $sources (not (has "ib" $sources)) (not (has "nvml" $sources)) }}
{{- $faults = append $faults "privileges.hostDevices is for the sources ib and nvml, which sources leaves out" }}
{{- end }}
{{- if and .Values.policy.enabled .Values.policy.elsewhere }}
{{- $faults = append $faults "policy.elsewhere is for policy.enabled=false" }}
{{- end }}
{{- if not (or .Values.policy.enabled .Values.policy.elsewhere) }}
{{- range $name, $text := include "bwagent.otherNames" (list . (index (splitList "\n---\n" (.Files.Get "files/policy.yaml")) 0 | fromYaml)) | fromJson }}
{{- $faults = append $faults (printf "%s is changed with policy.enabled=false: no policy would hold the agent to it (policy.elsewhere=true if one does)" $name) }}
{{- end }}
{{- end }}
{{- /* The bounds of the agent's flags, in seconds; none is above 720h. pytest tests/unit/test_chart.py --update-golden writes them. */}}
{{- range $flag, $least := dict "gpuInterval" 1 "hold" 0 "minInterval" 1 "portInterval" 0.1 "resync" 300 "verdictDelay" 0 }}
{{- with get $.Values.run $flag }}
{{- $unit := ternary 3600 (ternary 60 1 (hasSuffix "m" .)) (hasSuffix "h" .) }}
{{- $seconds := mulf (regexFind "^[0-9.]+" . | float64) $unit }}
{{- if lt $seconds (float64 $least) }}
{{- $faults = append $faults (printf "run.%s=%s is below the agent's least time, %vs" $flag . $least) }}
{{- else if gt $seconds 2592000.0 }}
{{- $faults = append $faults (printf "run.%s=%s is above the agent's greatest time, 720h" $flag .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.formerLabelPrefixes }}
{{- if or (eq . $.Values.labelPrefix) (eq . $.Values.ibLabelPrefix) (eq . $.Values.tierLabel) }}
{{- $faults = append $faults (printf "formerLabelPrefixes has %s, which is in use" .) }}
{{- end }}
{{- end }}
{{- range $index, $variable := .Values.extraEnv }}
{{- if or (hasPrefix "BWAGENT_" .name) (has .name (list "NODE_NAME" "NODE_IP")) }}
{{- $faults = append $faults (printf "extraEnv has %s, which the chart sets: it has a value of its own, and the policy follows that" .name) }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.tlsSecret .Values.metrics.podMonitor.enabled (not .Values.metrics.podMonitor.tlsConfig) }}
{{- $faults = append $faults "metrics.podMonitor.enabled with metrics.tlsSecret needs metrics.podMonitor.tlsConfig" }}
{{- end }}
{{- if and .Values.metrics.podMonitor.tlsConfig (not .Values.metrics.tlsSecret) }}
{{- $faults = append $faults "metrics.podMonitor.tlsConfig without metrics.tlsSecret" }}
{{- end }}
{{- if and (or .Values.networkPolicy.from .Values.networkPolicy.to) (not .Values.networkPolicy.enabled) }}
{{- $faults = append $faults "networkPolicy.from or networkPolicy.to without networkPolicy.enabled" }}
{{- end }}
{{- if and .Values.check.baseline.configMap (not .Values.check.enabled) }}
{{- $faults = append $faults "check.baseline.configMap without check.enabled" }}
{{- end }}
{{- if hasKey .Values.podLabels "app.kubernetes.io/name" }}
{{- $faults = append $faults "podLabels has app.kubernetes.io/name, by which the DaemonSet knows its Pods" }}
{{- end }}
{{- range $name := keys (include "bwagent.ownLabels" . | fromYaml) | sortAlpha }}
{{- if hasKey $.Values.commonLabels $name }}
{{- $faults = append $faults (printf "commonLabels has %s, which the chart sets" $name) }}
{{- end }}
{{- end }}
{{- with .Values.metrics.podMonitor }}
{{- if and .interval .scrapeTimeout (gt (include "bwagent.milliseconds" .scrapeTimeout | int) (include "bwagent.milliseconds" .interval | int)) }}
{{- $faults = append $faults (printf "metrics.podMonitor.scrapeTimeout=%s is longer than metrics.podMonitor.interval=%s" .scrapeTimeout .interval) }}
{{- end }}
{{- end }}
{{- $limits := .Values.resources.limits | default dict }}
{{- range $name, $request := .Values.resources.requests }}
{{- $limit := get $limits $name | toString }}
{{- /* Of a device or of huge pages nobody gets more than was asked for. */}}
{{- $whole := or (contains "/" $name) (hasPrefix "hugepages-" $name) }}
{{- if and $whole (not (hasKey $limits $name)) }}
{{- $faults = append $faults (printf "resources.requests has %s without its limit" $name) }}
{{- else if hasKey $limits $name }}
{{- $asked := include "bwagent.number" $request | float64 }}
{{- $most := include "bwagent.number" $limit | float64 }}
{{- if gt $asked $most }}
{{- $faults = append $faults (printf "resources.requests.%s=%v is above resources.limits.%s=%s" $name $request $name $limit) }}
{{- else if and $whole (ne $asked $most) }}
{{- $faults = append $faults (printf "resources.requests.%s=%v is not resources.limits.%s=%s" $name $request $name $limit) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (lt (int .Values.metrics.port) 1024) (not $devices) }}
{{- $faults = append $faults (printf "metrics.port=%d needs a capability that the agent does not have: 1024 or above" (int .Values.metrics.port)) }}
{{- end }}
{{- /* The API server refuses these in the DaemonSet, when Helm has applied what comes before it. */}}
{{- $volumes := list }}
{{- range .Values.extraVolumes }}
{{- if has .name (list "token" "dev" "usr" "proc" "tls" "plan") }}
{{- $faults = append $faults (printf "extraVolumes has %s, which the chart sets" .name) }}
{{- else if has .name $volumes }}
{{- $faults = append $faults (printf "extraVolumes has %s twice" .name) }}
{{- end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $paths := list "/var/run/secrets/kubernetes.io/serviceaccount" }}
{{- if $devices }}{{ $paths = concat $paths (list "/dev" "/host/usr" "/host/proc") }}{{ end }}
{{- if .Values.metrics.tlsSecret }}{{ $paths = append $paths "/etc/bwagent/tls" }}{{ end }}
{{- if .Values.plan.configMap }}{{ $paths = append $paths "/etc/bwagent/plan" }}{{ end }}
{{- range .Values.extraVolumeMounts }}
{{- if not (has .name $volumes) }}
{{- $faults = append $faults (printf "extraVolumeMounts has %s, which is not in extraVolumes" .name) }}
{{- end }}
{{- if has (clean .mountPath) $paths }}
{{- $faults = append $faults (printf "extraVolumeMounts has %s, which is mounted already" (clean .mountPath)) }}
{{- end }}
{{- $paths = append $paths (clean .mountPath) }}
{{- end }}
{{- range $value, $file := dict "alerts" "rules.yaml" "dashboard" "dashboard.json" }}
{{- if and (get $.Values $value).enabled (not ($.Files.Get (printf "files/%s" $file))) }}
{{- $faults = append $faults (printf "%s.enabled, and this chart has no files/%s" $value $file) }}
{{- end }}
{{- end }}
{{- toJson $faults }}
{{- end }}

{{/* The values of labels' names that differ from those in a policy, as a JSON object: value -> the policy's. */}}
{{- define "bwagent.otherNames" -}}
{{- $values := dict "prefix" "labelPrefix" "ibPrefix" "ibLabelPrefix" "accelerator" "acceleratorLabel" "tierLabel" "tierLabel" "formerPrefixes" "formerLabelPrefixes" }}
{{- $names := include "bwagent.labelNames" (index . 0) | fromYaml }}
{{- $others := dict }}
{{- range (index . 1).spec.variables }}
{{- $theirs := trimAll "'" .expression }}
{{- if and (hasKey $names .name) (ne (get $names .name) $theirs) }}
{{- $_ := set $others (get $values .name) $theirs }}
{{- end }}
{{- end }}
{{- toJson $others }}
{{- end }}

{{/* A quantity of Kubernetes as a number. */}}
{{- define "bwagent.number" -}}
{{- $units := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 }}
{{- $binary := dict "Ki" 0x1p10 "Mi" 0x1p20 "Gi" 0x1p30 "Ti" 0x1p40 "Pi" 0x1p50 "Ei" 0x1p60 }}
{{- $text := toString . }}
{{- $unit := regexFind "[a-zA-Z]+$" $text }}
{{- mulf (trimSuffix $unit $text | float64) (get (merge $units $binary) $unit) }}
{{- end }}

{{/* A duration of Prometheus as milliseconds. */}}
{{- define "bwagent.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int) (get $units (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* What in the cluster forbids the release, as a JSON list of sentences: other agents and their policies,
and its own agents if they would read less than they do. */}}
{{- define "bwagent.conflicts" -}}
{{- $faults := list }}
{{- $name := include "bwagent.name" . }}
{{- $settings := (lookup "v1" "ConfigMap" .Release.Namespace $name).data | default dict }}
{{- if hasKey $settings "BWAGENT_LABEL_PREFIX" }}
{{- $all := list "rdma" "lldp" "ib" "nvml" }}
{{- range get $settings "BWAGENT_SOURCE" | default (join " " $all) | splitList " " }}
{{- if not (has . (concat ($.Values.sources | default $all) $.Values.droppedSources)) }}
{{- $faults = append $faults (printf "sources leaves out %s, which the running agents read: give all values of the installation again, or droppedSources={%s}" . .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range (lookup "apps/v1" "DaemonSet" "" "").items }}
{{- $spec := .spec.template.spec }}
{{- $where := printf "the DaemonSet %s in namespace %s" .metadata.name .metadata.namespace }}
{{- $own := and (eq .metadata.name $name) (eq .metadata.namespace $.Release.Namespace) }}
{{- /* Of an object that it takes over, Helm leaves what the new one does not have: volumes of the host, say. */}}
{{- if and $own (ne $.Release.Name (get (.metadata.annotations | default dict) "meta.helm.sh/release-name" | default "")) }}
{{- $faults = append $faults (printf "%s is not of this release: delete it with --cascade=orphan first (README.md, From an overlay to the chart)" $where) }}
{{- end }}
{{- if and (not $own) (eq "bwagent" (get (.spec.template.metadata.labels | default dict) "app.kubernetes.io/name" | default "")) }}
{{- $apart := false }}
{{- range $key, $value := $spec.nodeSelector | default dict }}
{{- if and (hasKey $.Values.nodeSelector $key) (ne $value (get $.Values.nodeSelector $key)) }}
{{- $apart = true }}
{{- end }}
{{- end }}
{{- if not $apart }}
{{- $faults = append $faults (printf "%s has its agents on the same nodes: delete it first, or give one key of nodeSelector another value" $where) }}
{{- else if eq .metadata.namespace $.Release.Namespace }}
{{- $faults = append $faults (printf "%s has Pods of the same labels: give this release a namespace of its own" $where) }}
{{- end }}
{{- end }}
{{- end }}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" "").items }}
{{- $variables := list }}
{{- range .spec.variables }}{{ $variables = append $variables .name }}{{ end }}
{{- if and (ne .metadata.name (include "bwagent.clusterName" $)) (has "formerPrefixes" $variables) (has "ibPrefix" $variables) }}
{{- $policy := .metadata.name }}
{{- range $value, $theirs := include "bwagent.otherNames" (list $ .) | fromJson }}
{{- $faults = append $faults (printf "%s differs from %q of the ValidatingAdmissionPolicy %s, which would refuse the labels: one set of names per cluster" $value $theirs $policy) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $faults }}
{{- end }}
