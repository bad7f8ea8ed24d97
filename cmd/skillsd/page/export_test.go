package page

// Routes returns the patterns of all routes.
func (p *Page) Routes() []string { return p.routes }
