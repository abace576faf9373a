// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BuiltIns returns the kinds that Kubernetes v1.37 serves by default, in discovery's order.
var BuiltIns = sync.OnceValue(func() []Definition {
	var list []Definition
	var gv schema.GroupVersion
	for _, line := range strings.Split(strings.TrimSpace(builtInTable), "\n") {
		if fields := strings.Fields(line); line[0] == '\t' {
			list = append(list, builtInDefinition(gv, fields[0], fields[1], fields[2:]))
		} else {
			group, version, found := strings.Cut(line, "/")
			if !found {
				group, version = "", line
			}
			gv = schema.GroupVersion{Group: group, Version: version}
		}
	}
	return list
})

func builtInDefinition(gv schema.GroupVersion, name, kind string, facts []string) Definition {
	d := Definition{
		Resource: Resource{Group: gv.Group, Version: gv.Version, Kind: kind, Name: name, Namespaced: true},
		Singular: strings.ToLower(kind), Verbs: allVerbs, Native: true,
	}
	for _, fact := range facts {
		what, list, _ := strings.Cut(fact, "=")
		values := strings.Split(list, ",")
		switch what {
		case "cluster":
			d.Namespaced = false
		case "short":
			d.ShortNames = values
		case "categories":
			d.Categories = values
		case "verbs":
			d.Verbs = values
		case "sub":
			d.Subresources = values
		}
	}
	d.setBuiltIn()
	return d
}

// builtInTable has a line for each group version, and below it one for each resource.
const builtInTable = `
v1
	bindings Binding verbs=create
	componentstatuses ComponentStatus cluster short=cs verbs=get,list
	configmaps ConfigMap short=cm
	endpoints Endpoints short=ep
	events Event short=ev
	limitranges LimitRange short=limits
	namespaces Namespace cluster short=ns verbs=create,delete,get,list,patch,update,watch sub=finalize,status
	nodes Node cluster short=no sub=proxy,status
	persistentvolumeclaims PersistentVolumeClaim short=pvc sub=status
	persistentvolumes PersistentVolume cluster short=pv sub=status
	pods Pod short=po categories=all sub=attach,binding,ephemeralcontainers,eviction,exec,log,portforward,proxy,resize,status
	podtemplates PodTemplate
	replicationcontrollers ReplicationController short=rc categories=all sub=scale,status
	resourcequotas ResourceQuota short=quota sub=status
	secrets Secret
	serviceaccounts ServiceAccount short=sa sub=token
	services Service short=svc categories=all sub=proxy,status
apiregistration.k8s.io/v1
	apiservices APIService cluster categories=api-extensions sub=status
apps/v1
	controllerrevisions ControllerRevision
	daemonsets DaemonSet short=ds categories=all sub=status
	deployments Deployment short=deploy categories=all sub=scale,status
	replicasets ReplicaSet short=rs categories=all sub=scale,status
	statefulsets StatefulSet short=sts categories=all sub=scale,status
events.k8s.io/v1
	events Event short=ev
authentication.k8s.io/v1
	selfsubjectreviews SelfSubjectReview cluster verbs=create
	tokenreviews TokenReview cluster verbs=create
authorization.k8s.io/v1
	localsubjectaccessreviews LocalSubjectAccessReview verbs=create
	selfsubjectaccessreviews SelfSubjectAccessReview cluster verbs=create
	selfsubjectrulesreviews SelfSubjectRulesReview cluster verbs=create
	subjectaccessreviews SubjectAccessReview cluster verbs=create
autoscaling/v2
	horizontalpodautoscalers HorizontalPodAutoscaler short=hpa categories=all sub=status
autoscaling/v1
	horizontalpodautoscalers HorizontalPodAutoscaler short=hpa categories=all sub=status
batch/v1
	cronjobs CronJob short=cj categories=all sub=status
	jobs Job categories=all sub=status
certificates.k8s.io/v1
	certificatesigningrequests CertificateSigningRequest cluster short=csr sub=approval,status
	clustertrustbundles ClusterTrustBundle cluster
	podcertificaterequests PodCertificateRequest sub=status
networking.k8s.io/v1
	ingressclasses IngressClass cluster
	ingresses Ingress short=ing sub=status
	ipaddresses IPAddress cluster short=ip
	networkpolicies NetworkPolicy short=netpol
	servicecidrs ServiceCIDR cluster sub=status
policy/v1
	poddisruptionbudgets PodDisruptionBudget short=pdb sub=status
rbac.authorization.k8s.io/v1
	clusterrolebindings ClusterRoleBinding cluster
	clusterroles ClusterRole cluster
	rolebindings RoleBinding
	roles Role
storage.k8s.io/v1
	csidrivers CSIDriver cluster
	csinodes CSINode cluster sub=status
	csistoragecapacities CSIStorageCapacity
	storageclasses StorageClass cluster short=sc
	volumeattachments VolumeAttachment cluster sub=status
	volumeattributesclasses VolumeAttributesClass cluster short=vac
admissionregistration.k8s.io/v1
	mutatingadmissionpolicies MutatingAdmissionPolicy cluster categories=api-extensions
	mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding cluster categories=api-extensions
	mutatingwebhookconfigurations MutatingWebhookConfiguration cluster categories=api-extensions
	validatingadmissionpolicies ValidatingAdmissionPolicy cluster categories=api-extensions sub=status
	validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding cluster categories=api-extensions
	validatingwebhookconfigurations ValidatingWebhookConfiguration cluster categories=api-extensions
apiextensions.k8s.io/v1
	customresourcedefinitions CustomResourceDefinition cluster short=crd,crds categories=api-extensions sub=status
scheduling.k8s.io/v1
	priorityclasses PriorityClass cluster short=pc
coordination.k8s.io/v1
	leases Lease
node.k8s.io/v1
	runtimeclasses RuntimeClass cluster
discovery.k8s.io/v1
	endpointslices EndpointSlice
resource.k8s.io/v1
	deviceclasses DeviceClass cluster
	devicetaintrules DeviceTaintRule cluster sub=status
	resourceclaims ResourceClaim sub=status
	resourceclaimtemplates ResourceClaimTemplate
	resourceslices ResourceSlice cluster
flowcontrol.apiserver.k8s.io/v1
	flowschemas FlowSchema cluster sub=status
	prioritylevelconfigurations PriorityLevelConfiguration cluster sub=status
storagemigration.k8s.io/v1
	storageversionmigrations StorageVersionMigration cluster sub=status
`
