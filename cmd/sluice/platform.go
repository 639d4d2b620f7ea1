package main

import (
	"crypto/rand"
	"fmt"
	"os"
)

// writeDefaultPlatform makes a platforms file with one platform, "default", whose
// user "sluice" has a random password.
func writeDefaultPlatform(path string) error {
	content := fmt.Sprintf(`# Who may call: docs/operating.md, "Platforms". Read again when it changes.
platforms:
- name: default
  basic:
  - {username: sluice, password: %s}
`, rand.Text())
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("make a default platform: %w", err)
	}
	return nil
}
