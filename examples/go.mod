module github.com/yuzhi-go/yuzhi/examples

go 1.26.0

replace github.com/yuzhi-go/yuzhi => ..
