package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GreetingSpec is the desired state.
type GreetingSpec struct {
	// message is stored in the ConfigMap, under the key message.
	// +kubebuilder:validation:MinLength=1
	// +required
	Message string `json:"message"`
}

// GreetingStatus is the observed state. Only the operator writes it.
type GreetingStatus struct {
	// conditions holds the condition Ready: the children are as desired.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Greeting is a message in a ConfigMap of the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=greetings
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec GreetingSpec `json:"spec"`
	// +optional
	Status GreetingStatus `json:"status,omitempty"`
}

// GreetingList is a list of objects of the kind Greeting.
//
// +kubebuilder:object:root=true
type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Greeting `json:"items"`
}
