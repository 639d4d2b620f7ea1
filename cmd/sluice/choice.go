package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// choice is the value of a flag that has one of several values.
type choice[T ~string] struct {
	value *T
	of    []T
}

// bindChoice binds a flag that has one of several values, the first of which is its default. The values are
// written behind its usage, and offered by the shell's completion.
func bindChoice[T ~string](cmd *cobra.Command, target *T, name, short, usage string, of ...T) {
	*target = of[0]
	bindRequiredChoice(cmd, target, name, short, usage, of...)
}

// bindRequiredChoice is bindChoice for a flag that has no default.
func bindRequiredChoice[T ~string](cmd *cobra.Command, target *T, name, short, usage string, of ...T) {
	c := &choice[T]{value: target, of: of}
	cmd.Flags().VarP(c, name, short, usage+": "+c.list())
	var offered []string
	for _, value := range of {
		offered = append(offered, string(value))
	}
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(offered, cobra.ShellCompDirectiveNoFileComp))
}

// Set takes one of the values.
func (c *choice[T]) Set(text string) error {
	if !slices.Contains(c.of, T(text)) {
		return fmt.Errorf("want %s", c.list())
	}
	*c.value = T(text)
	return nil
}

func (c *choice[T]) String() string {
	if c.value == nil {
		return "" // pflag asks a zero value
	}
	return string(*c.value)
}

// Type is what the help calls the value.
func (c *choice[T]) Type() string { return "string" }

// list names the values, for instance "cloud or edge".
func (c *choice[T]) list() string {
	var text strings.Builder
	for i, value := range c.of {
		switch {
		case i == 0:
		case i == len(c.of)-1:
			text.WriteString(" or ")
		default:
			text.WriteString(", ")
		}
		text.WriteString(string(value))
	}
	return text.String()
}
