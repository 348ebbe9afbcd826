// Package kubernetes has the manifests of examples/api for Kubernetes; README.md says how to apply
// them. Its tests hold them against the API and start what they say.
package kubernetes
