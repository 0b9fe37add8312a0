addEventListener("DOMContentLoaded", () => {
  setUpTheme();
  setUpCopying();
  setUpBar();
});
