// Empty: it lets pin_runtime.go declare functions without a body.
