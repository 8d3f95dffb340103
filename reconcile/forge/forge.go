// Package forge speaks with GitHub, GitLab, Gitea and Forgejo, and says the little that headway has to say there: one
// comment for each pull request and plan root, edited and never posted twice, one commit status, and which repository a
// webhook is about. What it decides is apart from what it sends (DESIGN.md). A forge's answer is a stranger's word:
// bounded, checked, and never quoted with a token in it.
package forge

// Kind is which forge it is: their programs differ, the questions do not.
type Kind string

// The forges. Forgejo speaks as Gitea does.
const (
	GitHub Kind = "github"
	GitLab Kind = "gitlab"
	Gitea  Kind = "gitea"
)
