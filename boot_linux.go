package pocketmq

import (
	"os"
	"strings"
)

// bootID names the time since the machine began to run; "" when it does not say.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
