// Package kubernetes has the manifests of examples/api for Kubernetes; README.md says how to apply
// them. Its tests check them against the API, and start the processes that they describe.
package kubernetes
