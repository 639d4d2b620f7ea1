package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// version is set by the linker.
var version = "dev"

func newVersionCommand() *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of sluice, of the OSB API and of the resources",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := struct {
				Version   string `json:"version"`
				Revision  string `json:"revision,omitempty"`
				OSB       string `json:"osb"`
				Resources string `json:"resources"`
			}{Version: version, OSB: "2.13 to 2.17", Resources: v1alpha1.GroupVersion.String()}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, setting := range info.Settings {
					if setting.Key == "vcs.revision" {
						shown.Revision = setting.Value
					}
				}
			}
			if !output.forPeople() {
				return output.print(cmd.OutOrStdout(), shown, table{})
			}
			revision := ""
			if shown.Revision != "" {
				revision = " (" + shown.Revision + ")"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "sluice %s%s\nOSB API %s\nresources %s\n", shown.Version, revision, shown.OSB, shown.Resources)
			return err
		},
	}
	output.bindFormats(cmd, outputTable, outputJSON, outputYAML)
	return cmd
}
