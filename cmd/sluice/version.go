package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of sluice, of the OSB API and of the resources",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, setting := range info.Settings {
					if setting.Key == "vcs.revision" {
						revision = " (" + setting.Value + ")"
					}
				}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "sluice %s%s\nOSB API 2.13 to 2.17\nresources sluice.dev/v1alpha1\n", version, revision)
			return err
		},
	}
}
