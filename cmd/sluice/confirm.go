package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirmation is the flag --yes of a command that deletes or replaces what nobody can bring back.
type confirmation struct{ yes bool }

func (c *confirmation) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
}

// given asks a question on a terminal, unless --yes was given, and reports whether it was answered with yes. Where nobody
// can be asked, the command itself is the confirmation.
func (c *confirmation) given(cmd *cobra.Command, question string, args ...any) bool {
	return c.yes || !onTerminal(cmd) || asked(cmd, question, args...)
}

// asked asks a question, and reports whether it was answered with yes.
func asked(cmd *cobra.Command, question string, args ...any) bool {
	fmt.Fprint(cmd.ErrOrStderr(), printable(fmt.Sprintf(question, args...)), " [y/N] ")
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return err == nil && (answer == "y" || answer == "yes")
}

// onTerminal reports whether standard input is a terminal, so that the user can be asked.
func onTerminal(cmd *cobra.Command) bool {
	file, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) // a descriptor is a small number
}
