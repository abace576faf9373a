module github.com/setpoint-dev/setpoint/examples/website

go 1.26.0

require github.com/setpoint-dev/setpoint v0.1.0
