package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choice is the value of a flag with a fixed set of values.
type choice[T ~string] struct {
	value *T
	of    []T
}

// bindChoice binds a flag with a fixed set of values. The first one is the default. The
// values are appended to the usage and offered by the shell's completion.
func bindChoice[T ~string](cmd *cobra.Command, target *T, name, short, usage string, of ...T) {
	*target = of[0]
	bindRequiredChoice(cmd, target, name, short, usage, of...)
}

// bindRequiredChoice does the same for a flag without a default.
func bindRequiredChoice[T ~string](cmd *cobra.Command, target *T, name, short, usage string, of ...T) {
	c := &choice[T]{value: target, of: of}
	bindFlag(cmd, c, name, short, usage+": "+c.list(), of)
}

// bindFlag binds a flag, for which the shell's completion offers values.
func bindFlag[T ~string](cmd *cobra.Command, value pflag.Value, name, short, usage string, offered []T) {
	cmd.Flags().VarP(value, name, short, usage)
	var texts []string
	for _, each := range offered {
		texts = append(texts, string(each))
	}
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(texts, cobra.ShellCompDirectiveNoFileComp))
}

// Set accepts one of the values.
func (c *choice[T]) Set(text string) error {
	if !slices.Contains(c.of, T(text)) {
		return fmt.Errorf("want %s", c.list())
	}
	*c.value = T(text)
	return nil
}

func (c *choice[T]) String() string {
	if c.value == nil {
		return "" // pflag calls String on a zero value
	}
	return string(*c.value)
}

// Type returns the name of the value in the help.
func (c *choice[T]) Type() string { return "string" }

// list joins the values, for instance "cloud or edge".
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
