package controlplane

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Until waits for a condition for at most a time, and asks less often the longer it takes, because each question is work
// for an API server: at once, after the first pause, and later once in each longest pause.
func Until(ctx context.Context, first, longest, patience time.Duration, condition wait.ConditionWithContextFunc) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pause := wait.Backoff{Duration: first, Factor: 1.5, Steps: 20, Cap: longest}
	return pause.DelayFunc().Until(ctx, true, false, condition)
}
