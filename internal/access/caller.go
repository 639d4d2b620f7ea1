package access

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Role is the kind of a caller.
type Role string

// Roles of callers.
const (
	// Operator has the hub.
	Operator Role = "operator"
	// Platform buys, by the OSB API.
	Platform Role = "platform"
	// Provider runs member clusters, and sells.
	Provider Role = "provider"
)

// Caller is somebody who has proven who they are.
type Caller struct {
	Role Role
	// Name of the platform or the provider; empty for an operator.
	Name string
}

// Proof is a caller, and an entry of the platforms file that has proven who it is.
type Proof struct {
	Caller
	// Credential is a digest of the entry.
	Credential [sha256.Size]byte
}

// String returns the caller as tokens name it: operator, platform:NAME or provider:NAME.
func (c Caller) String() string {
	if c.Role == Operator {
		return string(Operator)
	}
	return string(c.Role) + ":" + c.Name
}

// check refuses callers that there cannot be.
func (c Caller) check() error {
	switch {
	case c.Role == Operator && c.Name == "":
		return nil
	case (c.Role == Platform || c.Role == Provider) && c.Name != "":
		return nil
	}
	return fmt.Errorf("%q is no caller: want operator, platform:NAME or provider:NAME", c)
}

// ParseCaller reads what String returned.
func ParseCaller(text string) (Caller, error) {
	role, name, _ := strings.Cut(text, ":")
	c := Caller{Role: Role(role), Name: name}
	if err := c.check(); err != nil {
		return Caller{}, err
	}
	if c.String() != text {
		return Caller{}, fmt.Errorf("%q is no caller: want operator, platform:NAME or provider:NAME", text)
	}
	return c, nil
}
