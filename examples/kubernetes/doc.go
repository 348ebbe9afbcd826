// Package kubernetes has the manifests of examples/api for Kubernetes; README.md describes how to apply them.
// The tests of the package check the manifests against the API, and start the processes in the manifests.
package kubernetes
